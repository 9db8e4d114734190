"""What every gradient shares: the problem, and the forward solve."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...dynamics import AbstractDynamics
from ..control import Tolerances
from ..nystrom import AbstractNystrom
from ..nystrom.stepper import NystromStepper
from ..record import Record, select
from ..runge_kutta import RungeKutta
from ..solution import RESULTS
from ..stepper import AbstractStepper
from ..stepping import Trajectory, run
from ..systems import ForwardSystem


class Inputs(NamedTuple):
    """All that a solve can be differentiated with respect to."""

    dynamics: AbstractDynamics
    y0: PyTree
    ts: Array
    args: PyTree
    probe: Array | None


class Settings(eqx.Module):
    """All that it cannot."""

    solver: Any
    tolerances: Tolerances
    dt0: Array | None
    result: RESULTS
    max_steps: int = eqx.field(static=True)
    throw: bool = eqx.field(static=True)


class Outputs(NamedTuple):
    """What a solve returns, before it is dressed up as a `Solution`."""

    ys: PyTree
    nfe: Array
    accepted: Array
    rejected: Array
    result: RESULTS
    dt: Array
    t: Array


class AbstractGradient(eqx.Module):
    """HOW a solve is differentiated."""

    @abc.abstractmethod
    def integrate(self, inputs: Inputs, settings: Settings) -> Outputs:
        """Solves, in a way that can be differentiated in reverse mode."""


def make_stepper(solver, system) -> AbstractStepper:
    """`solver` applied to `system`."""
    kind = NystromStepper if isinstance(solver, AbstractNystrom) else RungeKutta
    return kind(solver, system)


def forward_stepper(solver, dynamics: AbstractDynamics, args: PyTree) -> AbstractStepper:
    """`solver` applied to the dynamics themselves."""
    return make_stepper(solver, ForwardSystem(dynamics, args))


def solve_forward(
    inputs: Inputs, settings: Settings, slots: int | None = None
) -> tuple[Outputs, Trajectory]:
    """The forward solve; with `slots` it keeps a record of the steps it accepts."""
    dynamics, y0, ts, args, _ = inputs
    stepper = forward_stepper(settings.solver, dynamics, args)
    record = None
    if slots is not None:
        f0 = jax.eval_shape(stepper.system.evaluate, ts[0], y0)
        record = Record.empty(settings.max_steps, slots, ts.dtype, (y0, f0))
    trajectory = run(
        stepper, settings.tolerances, ts, y0,
        dt0=settings.dt0, max_steps=settings.max_steps, result=settings.result, record=record,
    )  # fmt: skip
    done = trajectory.result == RESULTS.successful
    last = select(done, trajectory.y, jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), y0))

    def assemble(first, interior, last):
        rows = (
            [first[None], last[None]] if interior is None else [first[None], interior, last[None]]
        )
        return jnp.concatenate(rows)

    if ts.size == 1:
        ys = jax.tree.map(lambda x: x[None], y0)
    elif trajectory.ys is None:
        ys = jax.tree.map(lambda a, b: assemble(a, None, b), y0, last)
    else:
        ys = jax.tree.map(assemble, y0, trajectory.ys, last)
    outputs = Outputs(
        ys, trajectory.nfe, trajectory.accepted, trajectory.rejected, trajectory.result,
        trajectory.dt, trajectory.t,
    )  # fmt: skip
    return outputs, trajectory


def dense_cotangents(ct: PyTree, like: PyTree) -> PyTree:
    """Cotangents of `like` with zeros where there is none."""
    return jax.tree.map(
        lambda x, c: jnp.zeros_like(x) if c is None else c, like, ct, is_leaf=lambda x: x is None
    )

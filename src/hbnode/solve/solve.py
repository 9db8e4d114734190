"""`solve`: the one way to integrate a neural ODE."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from ..dynamics import GHBNODE, AbstractDynamics, Paced
from ..dynamics.heavy_ball import identity, is_identity
from . import validation
from .adjoints import AbstractGradient, ContinuousAdjoint, DiscreteAdjoint
from .adjoints.base import Inputs, Settings
from .control import Tolerances
from .failure import raise_on_failure
from .nystrom import Nystrom4, Nystrom8
from .solution import Solution, Stats

# Above this damping the transformed equation grows so fast within a step that a Runge–Kutta pair
# needs fewer evaluations; measured on oscillators, see docs/solvers.md.
STIFF_DAMPING = 20.0


def default_solver(dynamics: AbstractDynamics, ts: Array):
    """`Nystrom8` where the dynamics have a Nyström form, or `Nystrom4` where the solution is wanted
    at times in between, on which `Nystrom8` has to land; Dopri5 elsewhere."""
    if not prefers_nystrom(dynamics):
        return diffrax.Dopri5()
    return Nystrom8() if ts.size <= 2 else Nystrom4()


def prefers_nystrom(dynamics: AbstractDynamics) -> bool:
    """Whether a Nyström pair can solve the dynamics, and is likely to be the faster choice."""
    try:
        gamma = dynamics.nystrom_form().gamma
    except ValueError:
        return False
    return not (isinstance(gamma, float) and gamma > STIFF_DAMPING)


def solve(
    dynamics: AbstractDynamics,
    y0: PyTree[ArrayLike],
    ts: Float[ArrayLike, " times"] | list | tuple,
    *,
    args: PyTree = None,
    solver=None,
    gradient: AbstractGradient | None = None,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-5,
    dt0: ArrayLike | None = None,
    max_steps: int = 4096,
    probe: ArrayLike | None = None,
    throw: bool = True,
) -> Solution:
    """Solves a neural ODE and returns its states at `ts`, with exact counts.

    The whole state is one system with one error norm. For a batch whose samples choose their own
    steps, `jax.vmap` this function.

    **Arguments:**

    - `dynamics`: `NODE`, `ANODE`, `SONODE`, `HBNODE` or `GHBNODE`.
    - `y0`: the state at `ts[0]`: h0, or the pair (h0, m0) for a second-order family.
    - `ts`: times, strictly increasing or strictly decreasing. Between the first and the last the
        state is interpolated.
    - `args`: passed on to the field.
    - `solver`: an explicit Runge–Kutta solver of diffrax or one of `Nystrom4` … `Nystrom8`. By
        default, where the dynamics have a Nyström form, `Nystrom8` for a solution at the end and
        `Nystrom4` for one at times between; `diffrax.Dopri5` elsewhere.
    - `gradient`: `DiscreteAdjoint()` (the default), `Checkpointed()` or `ContinuousAdjoint()`.
    - `rtol`, `atol`: a step is accepted when its estimated error is below atol + rtol·|y|, root
        mean square over the state.
    - `dt0`: the size of the first step, its sign ignored; `None` chooses it at the cost of one
        evaluation. `sol.dt` of an earlier solve is a good value. A solver without error estimate
        takes all its steps of this size.
    - `max_steps`: the limit of accepted and rejected steps together.
    - `probe`: a number, such as 0.0, that changes nothing; the gradient with respect to it is the
        number of evaluations of the backward pass.
    - `throw`: whether a failed solve raises an error. If not, look at `sol.result`.

    ```python
    dynamics = hbnode.HBNODE(lambda t, h, args: -h, gamma=0.5)
    sol = hbnode.solve(dynamics, (jnp.ones(3), jnp.zeros(3)), [0.0, 1.0])
    h, m = sol.ys
    print(h[-1], sol.stats.nfe)
    ```
    """
    validation.check_dynamics(dynamics)
    dynamics.check_state(y0)
    y0 = jax.tree.map(jnp.asarray, tuple(y0) if isinstance(y0, list) else y0)
    dtype = jax.tree.leaves(y0)[0].dtype
    ts = validation.check_times(ts, dtype)
    validation.check_max_steps(max_steps)
    dt0 = validation.check_dt0(dt0, dtype)
    solver = default_solver(dynamics, ts) if solver is None else solver
    validation.check_solver(solver, dynamics, dt0)
    gradient = DiscreteAdjoint() if gradient is None else gradient
    if not isinstance(gradient, AbstractGradient):
        raise TypeError(
            "`gradient` must be hbnode.DiscreteAdjoint(), Checkpointed() or ContinuousAdjoint(), "
            f"got {gradient!r}."
        )
    if isinstance(gradient, ContinuousAdjoint):
        validation.check_one_clock(dynamics, gradient.solver or solver)
        if gradient.solver is not None:
            validation.check_solver(gradient.solver, dynamics, dt0, "ContinuousAdjoint.solver")
        if not (gradient.rtol is None and gradient.atol is None):
            validation.check_tolerances(
                rtol if gradient.rtol is None else gradient.rtol,
                atol if gradient.atol is None else gradient.atol,
                dtype,
                "ContinuousAdjoint.",
            )
    rtol, atol = validation.check_tolerances(rtol, atol, dtype)
    probe = None if probe is None else jnp.asarray(probe, jnp.result_type(float))
    validation.check_field(dynamics, ts[0], y0, args)
    validation.check_gate(dynamics, y0)
    return _solve(
        dynamics, y0, ts, args, probe, solver, gradient, rtol, atol, dt0, max_steps, throw
    )


@eqx.filter_jit
def _solve(
    dynamics, y0, ts, args, probe, solver, gradient, rtol, atol, dt0, max_steps, throw
) -> Solution:
    result = validation.value_faults(dynamics, ts, rtol, atol, dt0)
    dynamics = _hoist(dynamics.resolve(), ts[0], y0, args)
    settings = Settings(solver, Tolerances(rtol, atol), dt0, result, max_steps, throw)
    out = gradient.integrate(Inputs(dynamics, y0, ts, args, probe), settings)
    stats = Stats(out.nfe, out.accepted, out.rejected)
    ys = raise_on_failure(out.ys, out.result, out.t, "the solve") if throw else out.ys
    return Solution(ts, ys, stats, out.result, jax.lax.stop_gradient(out.dt))


def _hoist(dynamics: AbstractDynamics, t: Array, y0: PyTree, args: PyTree) -> AbstractDynamics:
    """The dynamics with all that its functions close over made explicit, so that it is
    differentiated like any other argument, and with each function traced only once."""
    if isinstance(dynamics, Paced):
        return Paced(_hoist(dynamics.dynamics, t, y0, args), dynamics.pace)
    state = dynamics.field_state(y0)

    def field(t, h, args):  # a closure, since equinox leaves functions without one as they are
        return dynamics.field(t, h, args)

    parts: dict[str, Callable] = {"field": eqx.filter_closure_convert(field, t, state, args)}
    if isinstance(dynamics, GHBNODE):
        gate = dynamics.gate
        parts["gate"] = identity if is_identity(gate) else eqx.filter_closure_convert(gate, y0[1])
    return dataclasses.replace(dynamics, **parts)

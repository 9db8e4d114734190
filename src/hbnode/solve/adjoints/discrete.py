"""The exact gradient of the discrete solve, by replaying its steps backwards."""

from __future__ import annotations

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp

from ..record import visit_backwards
from ..solution import RESULTS
from ..stepping import reached
from .base import (
    AbstractGradient,
    Inputs,
    Outputs,
    Settings,
    dense_cotangents,
    forward_stepper,
    solve_forward,
)


@final
class DiscreteAdjoint(AbstractGradient):
    """The gradient of what the solver computed, not of what it approximates.

    The forward solve keeps (t, Δt) and the state of each accepted step; the backward pass takes
    them in reverse and applies the vector–Jacobian product of one unrolled step. Step-size control
    is not differentiated. One NFE for each stage of each accepted step, and one at the start.

    States are kept as long as they fit 256 MiB, and never more than 128 of them (never fewer than
    32). A solve of more steps keeps every second, fourth, … one and takes the others again, which
    adds at most one forward step for each; use [`Checkpointed`][] to keep fewer from the start.
    """

    def integrate(self, inputs: Inputs, settings: Settings) -> Outputs:
        leaves = jax.tree.leaves(inputs.y0)
        state_bytes = 1.5 * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        slots = int(min(128, max(32, 2**28 // max(state_bytes, 1))))
        return _solve(inputs, settings, slots, False)


@final
class Checkpointed(AbstractGradient):
    """The gradient of `DiscreteAdjoint` with fewer states in memory.

    **Arguments:** `checkpoints`: how many states to keep along the trajectory, 2 or more (an odd
    number is rounded up; again as many are made at a time on the way back). By default
    ⌈√max_steps⌉, with which each step is taken at most once more. The evaluations spent on taking
    steps again are part of the backward NFE.
    """

    checkpoints: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        n = self.checkpoints
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 2):
            raise ValueError(f"`checkpoints` must be a whole number of 2 or more, got {n!r}.")

    def integrate(self, inputs: Inputs, settings: Settings) -> Outputs:
        slots = self.checkpoints or max(2, math.ceil(math.sqrt(settings.max_steps)))
        return _solve(inputs, settings, slots, True)


@eqx.filter_custom_vjp
def _solve(inputs: Inputs, settings: Settings, slots: int, branch: bool) -> Outputs:
    return solve_forward(inputs, settings)[0]


@_solve.def_fwd
def _solve_fwd(perturbed: Inputs, inputs: Inputs, settings: Settings, slots: int, branch: bool):
    outputs, trajectory = solve_forward(inputs, settings, slots)
    return outputs, (trajectory.record, outputs, perturbed)


@_solve.def_bwd
def _solve_bwd(
    residuals,
    ct: Outputs,
    _perturbed,
    inputs: Inputs,
    settings: Settings,
    slots: int,
    branch: bool,
):
    record, outputs, perturbed = residuals
    dynamics, y0, ts, args, probe = inputs
    learned, fixed = eqx.partition((dynamics, args), (perturbed.dynamics, perturbed.args))
    ys_bar = dense_cotangents(ct.ys, outputs.ys)
    done = outputs.result == RESULTS.successful
    steps, interior = outputs.accepted, ts[1:-1]
    direction = jnp.sign(ts[-1] - ts[0])

    def stepper_of(learned):
        return forward_stepper(settings.solver, *eqx.combine(learned, fixed))

    def take(learned, t, dt, y, f):
        step = stepper_of(learned).step(t, dt, y, f)
        return (step.y, step.f), step.dense

    def visit(i, state):
        t, dt = record.ts[i], record.dts[i]
        if perturbed.ts:
            (after, dense), pull = jax.vjp(take, learned, t, dt, *state)
        else:
            (after, dense), pull = jax.vjp(lambda p, y, f: take(p, t, dt, y, f), learned, *state)

        def pull_back(carry):
            state_bar, learned_bar, ts_bar, saved = carry
            dense_bar = jax.tree.map(jnp.zeros_like, dense)
            t_bar = dt_bar = jnp.zeros_like(t)
            if interior.size > 0:
                dense_bar, t_bar, dt_bar, ts_bar, saved = pull_saves(
                    dense, t, dt, dense_bar, ts_bar, saved
                )
            if perturbed.ts:
                more_bar, t_more, dt_more, *state_bar = pull((state_bar, dense_bar))
                t_bar, dt_bar = t_bar + t_more, dt_bar + dt_more
                # the grid between is fixed: the first step begins at ts[0], the last ends at ts[-1]
                ts_bar = ts_bar.at[0].add(jnp.where(i == 0, t_bar - dt_bar, 0.0))
                ts_bar = ts_bar.at[-1].add(jnp.where(done & (i == steps - 1), dt_bar, 0.0))
            else:
                more_bar, *state_bar = pull((state_bar, dense_bar))
            learned_bar = jax.tree.map(jnp.add, learned_bar, more_bar)
            return tuple(state_bar), learned_bar, ts_bar, saved

        return after, pull_back

    def pull_saves(dense, t, dt, dense_bar, ts_bar, saved):
        """Cotangents of the states that were saved within the step from t, latest first."""
        stepper = stepper_of(learned)

        def within(carry):
            saved = carry[-1]
            time = interior[jnp.maximum(saved - 1, 0)]
            return (saved > 0) & ~reached(time, t, direction)

        def pull_one(carry):
            dense_bar, t_bar, dt_bar, ts_bar, saved = carry
            slot = saved - 1
            _, pull = jax.vjp(
                lambda dense, time, t, dt: stepper.interpolate(dense, dt, (time - t) / dt),
                dense, interior[slot], t, dt,
            )  # fmt: skip
            row = jax.tree.map(lambda c: c[slot + 1], ys_bar)
            more, time_bar, t_more, dt_more = pull(row)
            dense_bar = jax.tree.map(jnp.add, dense_bar, more)
            ts_bar = ts_bar.at[slot + 1].add(time_bar)
            return dense_bar, t_bar + t_more, dt_bar + dt_more, ts_bar, slot

        zero = jnp.zeros_like(t)
        return jax.lax.while_loop(within, pull_one, (dense_bar, zero, zero, ts_bar, saved))

    last_bar = jax.tree.map(lambda c: jnp.where(done, c[-1], 0.0), ys_bar)
    _, f0 = record.state(jnp.zeros_like(steps))
    zeros = jax.tree.map(jnp.zeros_like, learned)
    saved = jnp.sum(reached(interior, outputs.t, direction), dtype=steps.dtype)
    carry = ((last_bar, jax.tree.map(jnp.zeros_like, f0)), zeros, jnp.zeros_like(ts), saved)
    carry, again = visit_backwards(record, steps, visit, carry, branch)
    (y_bar, f_bar), learned_bar, ts_bar, _ = carry

    # the evaluation at the start
    _, pull = jax.vjp(lambda p, t, y: stepper_of(p).system.evaluate(t, y), learned, ts[0], y0)
    more_bar, t_bar, y_more = pull(f_bar)
    learned_bar = jax.tree.map(jnp.add, learned_bar, more_bar)
    ts_bar = ts_bar.at[0].add(t_bar)
    y0_bar = jax.tree.map(lambda a, b, c: a + b + c[0], y_bar, y_more, ys_bar)

    evaluations = stepper_of(learned).evaluations
    nfe = evaluations * (steps + again) + 1
    dynamics_bar, args_bar = learned_bar
    return Inputs(
        dynamics_bar, y0_bar, ts_bar, args_bar, None if probe is None else nfe.astype(probe.dtype)
    )

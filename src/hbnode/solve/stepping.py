"""The loop that takes steps: error control, saving, recording, quadrature and exact counts.

It is ours, with diffrax's tableaux and controller inside, for the sake of what diffrax's loop has
no place for: counts of evaluations, first stages shared across starts, a record of accepted steps
for the gradient, and quadratures that ride along. Under `jax.vmap` the loop runs until the last
sample is done; finished samples are masked, so that no buffer is copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .control import CONTROLLER, Tolerances
from .record import Record, select
from .solution import RESULTS
from .stepper import AbstractStepper


class Trajectory(NamedTuple):
    """Where a run of the loop ended and what it collected."""

    t: Array
    y: PyTree
    f: PyTree
    q: PyTree
    ys: PyTree
    record: Record | None
    nfe: Array
    accepted: Array
    rejected: Array
    result: RESULTS
    dt: Array


class _Carry(NamedTuple):
    t: Array
    dt: Array
    y: PyTree
    f: PyTree
    q: PyTree
    ys: PyTree
    saved: Array
    record: Record | None
    controller: PyTree
    nfe: Array
    accepted: Array
    rejected: Array
    result: RESULTS
    last_dt: Array


def all_finite(*trees: PyTree) -> Array:
    """Whether no leaf of any tree holds NaN or infinity."""
    checks = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(trees)]
    return jnp.all(jnp.stack(checks))


def run(
    stepper: AbstractStepper,
    tolerances: Tolerances,
    ts: Array,
    y0: PyTree,
    *,
    dt0: Array | None,
    max_steps: int,
    f0: PyTree = None,
    result: RESULTS | None = None,
    record: Record | None = None,
    q0: PyTree = None,
    control_q: bool = False,
) -> Trajectory:
    """Integrates from ts[0] to ts[-1], saving the states at the times between: by interpolation,
    or by landing on them where the stepper does that.

    `ts` must be monotone. A `result` that is given and not successful means that there is nothing
    to do. The evaluation `f0` at the start is made, and counted, here unless it is given. With
    `control_q` the quadratures, which start at `q0`, are part of the error norm.
    """
    system = stepper.system
    t0, t1, interior = ts[0], ts[-1], ts[1:-1]
    eps = jnp.finfo(t0.dtype).eps
    direction = jnp.where(t1 >= t0, 1, -1).astype(t0.dtype)
    tiny = 10 * eps * jnp.maximum(jnp.abs(t0), jnp.abs(t1))

    nfe = 0
    if f0 is None:
        f0 = system.evaluate(t0, y0)
        nfe += 1
    if dt0 is None:
        dt = direction * tolerances.first_step(stepper, t0, y0, f0, direction)
        nfe += 1
    else:
        dt = direction * jnp.abs(dt0)
    starts = all_finite(y0, f0)
    result = _where_successful(
        RESULTS.successful if result is None else result, ~starts, RESULTS.field_not_finite
    )

    def active(carry: _Carry) -> Array:
        return (carry.result == RESULTS.successful) & (carry.t != t1)

    def body(carry: _Carry) -> _Carry:
        busy = active(carry)
        t, y, f = carry.t, carry.y, carry.f
        target = t1
        if stepper.lands and interior.size > 0:
            target = ts[carry.saved + 1]
        rest = target - t
        landing = jnp.abs(carry.dt) * (1 + 1e-4) >= jnp.abs(rest)
        dt = jnp.where(landing, rest, carry.dt)
        step = stepper.step(t, dt, y, f)
        q = None if q0 is None else jax.tree.map(jnp.add, carry.q, step.q)

        if stepper.adaptive:
            size = tolerances.scaled_error(step.error, y, step.y)
            if control_q:
                size = jnp.maximum(size, tolerances.each_scaled_error(step.q_error, carry.q, q))
            finite = jnp.isfinite(size)
            keep, _, t_proposed, _, controller, _ = CONTROLLER.adapt_step_size(
                jnp.zeros_like(dt), dt, jnp.zeros_like(size), jnp.zeros_like(size), None, size,
                stepper.error_order, carry.controller,
            )  # fmt: skip
            proposed = jnp.where(keep, t_proposed - dt, t_proposed)
        else:
            keep = finite = all_finite(step.y, step.f)
            proposed, controller = carry.dt, carry.controller

        keep = jnp.logical_and(keep, busy)
        t_next = jnp.where(landing, target, t + dt)
        record, ys, saved = carry.record, carry.ys, carry.saved
        if record is not None:
            record = record.put(carry.accepted, t, dt, (y, f), busy)
        if interior.size > 0:
            ys, saved = _save(stepper, step.dense, t, dt, t_next, interior, ys, saved, keep)

        accepted = carry.accepted + jnp.where(keep, 1, 0)
        rejected = carry.rejected + jnp.where(busy & ~keep, 1, 0)
        stuck = busy & ~keep & (jnp.abs(proposed) <= tiny)
        if not stepper.adaptive:
            stuck = busy & ~finite
        result = _where_successful(carry.result, stuck & finite, RESULTS.dt_min_reached)
        result = _where_successful(result, stuck & ~finite, RESULTS.field_not_finite)
        exhausted = busy & (accepted + rejected >= max_steps) & ~(keep & (t_next == t1))
        result = _where_successful(result, exhausted, RESULTS.max_steps_reached)
        go_on = jnp.maximum(jnp.abs(carry.dt), jnp.abs(proposed))
        return _Carry(
            t=jnp.where(keep, t_next, t),
            dt=jnp.where(busy, proposed, carry.dt),
            y=select(keep, step.y, y),
            f=select(keep, step.f, f),
            q=None if q0 is None else select(keep, q, carry.q),
            ys=ys,
            saved=saved,
            record=record,
            controller=controller,
            nfe=carry.nfe + jnp.where(busy, stepper.evaluations, 0),
            accepted=accepted,
            rejected=rejected,
            result=result,
            last_dt=jnp.where(keep, go_on, carry.last_dt),
        )

    end = jax.lax.while_loop(
        lambda carry: eqxi.unvmap_any(active(carry)),
        body,
        _Carry(
            t=t0,
            dt=dt,
            y=y0,
            f=f0,
            q=q0,
            ys=jax.tree.map(lambda x: jnp.full((interior.size, *x.shape), jnp.nan, x.dtype), y0)
            if interior.size > 0
            else None,
            saved=jnp.array(0),
            record=record,
            controller=(jnp.ones_like(dt), jnp.ones_like(dt), False),
            nfe=jnp.array(nfe),
            accepted=jnp.array(0),
            rejected=jnp.array(0),
            result=result,
            last_dt=jnp.abs(dt),
        ),
    )
    return Trajectory(
        end.t, end.y, end.f, end.q, end.ys, end.record, end.nfe, end.accepted, end.rejected,
        end.result, end.last_dt,
    )  # fmt: skip


def _where_successful(old: Any, pred: Array, new: Any) -> RESULTS:
    return RESULTS.where((old == RESULTS.successful) & pred, new, old)


def reached(t: Array, limit: Array, dt: Array) -> Array:
    """Whether time `t` lies at or before `limit` in the direction of `dt`."""
    return (t - limit) * jnp.sign(dt) <= 0


def _save(stepper, dense, t, dt, t_next, interior, ys, saved, keep):
    """Writes the states at all save times up to `t_next` that were not written before."""

    def pending(carry):
        _, index = carry
        time = interior[jnp.minimum(index, interior.size - 1)]
        return keep & (index < interior.size) & reached(time, t_next, dt)

    def write(carry):
        ys, index = carry
        here = pending(carry)
        slot = jnp.minimum(index, interior.size - 1)
        y = stepper.interpolate(dense, dt, (interior[slot] - t) / dt)
        ys = jax.tree.map(
            lambda buffer, x: buffer.at[slot].set(jnp.where(here, x, buffer[slot])), ys, y
        )
        return ys, index + jnp.where(here, 1, 0)

    return jax.lax.while_loop(lambda c: eqxi.unvmap_any(pending(c)), write, (ys, saved))

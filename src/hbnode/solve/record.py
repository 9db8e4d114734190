"""The record of accepted steps that the replayed gradient needs, in bounded memory.

XLA has no arrays that grow. So the state is kept at every `stride`-th accepted step, in a fixed
number of slots; the stride starts at 1 and doubles whenever the slots run out, which frees every
other slot. The times and sizes of all steps, two numbers each, are always kept: with them the
steps between two kept states can be taken again, exactly, without any error control.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


@final
class Record(eqx.Module):
    """Times, sizes and (some) states of the accepted steps."""

    ts: Array
    dts: Array
    states: PyTree
    stride: Array
    slots: int = eqx.field(static=True)
    scratch: int = eqx.field(static=True)  # how many states to make again at a time
    max_steps: int = eqx.field(static=True)

    @staticmethod
    def empty(max_steps: int, slots: int, time_dtype, state: PyTree) -> Record:
        """A record of at most `max_steps` steps of which about `slots` states are kept."""
        slots = min(slots + slots % 2, max_steps)  # an even number, so that strides can double
        longest = 1 << max(0, math.ceil(math.log2(max_steps / slots)))
        scratch = min(longest, slots) if slots < max_steps else 0
        # one slot more takes the states that are not kept
        states = jax.tree.map(lambda x: jnp.zeros((slots + 1, *x.shape), x.dtype), state)
        ts = jnp.zeros(max_steps + 1, time_dtype)
        return Record(ts, ts, states, jnp.array(1), slots, scratch, max_steps)

    @property
    def thins(self) -> bool:
        """Whether there may be more steps than slots."""
        return self.slots < self.max_steps

    def put(self, n: Array, t: Array, dt: Array, state: PyTree, pred: Array) -> Record:
        """Writes step n where `pred`. A step that is rejected is written over by the next
        attempt."""
        n = jnp.where(pred, n, self.max_steps)
        ts = self.ts.at[n].set(t, mode="promise_in_bounds")
        dts = self.dts.at[n].set(dt, mode="promise_in_bounds")
        stride, slot = self.stride, jnp.minimum(n, self.slots)
        if self.thins:
            full = pred & (n == self.slots * stride)
            stride = jnp.where(full, 2 * stride, stride)
            slot = jnp.where(pred & (n % stride == 0), self.slot(n), self.slots)
        states = jax.tree.map(
            lambda buffer, x: buffer.at[slot].set(x, mode="promise_in_bounds"), self.states, state
        )
        return Record(ts, dts, states, stride, self.slots, self.scratch, self.max_steps)

    def state(self, n: Array) -> PyTree:
        """The state at the start of step n, a multiple of the stride."""
        slot = self.slot(n)
        return jax.tree.map(lambda buffer: buffer[slot], self.states)

    def slot(self, n: Array) -> Array:
        """Where step n is kept: in slot n, as long as that exists. Later steps take the slots that
        the last doubling freed, in order: with stride 2p, step slots·p + 2p·j takes the slot of
        step p(2j + 1), which is no longer kept."""

        if not self.thins:
            return n

        def later(carry):
            return carry[0] >= self.slots

        def trace_back(carry):
            n, p = carry
            p = jnp.where(later(carry), _period(n, self.slots), p)
            back = p + (n - self.slots * p)
            return jnp.where(later(carry), back, n), p

        return jax.lax.while_loop(later, trace_back, (n, jnp.ones_like(n)))[0]


def _period(n: Array, slots: int) -> Array:
    """The power of two p with slots·p ≤ n < slots·2p."""
    ratio = jnp.maximum(n // slots, 1)
    return jax.lax.shift_left(jnp.ones_like(n), 8 * n.dtype.itemsize - 1 - jax.lax.clz(ratio))


def visit_backwards(
    record: Record,
    steps: Array,
    take: Callable[[Array, PyTree], tuple[PyTree, Callable[[PyTree], PyTree]]],
    carry: PyTree,
    branch: bool,
) -> tuple[PyTree, Array]:
    """Pulls `carry` back through the steps, last to first.

    `take(i, state)` takes step i from its state; it returns the state after it, and a function
    that pulls the carry back through it. A state that was not kept is made again from the nearest
    kept one before it, in stretches that fit a scratch buffer. Returns the carry and the number of
    steps taken again.

    With `branch` nothing is pulled through those steps. Without it the pull is made and dropped:
    wasteful if there are many, but a branch keeps the compiler from fusing across it, which slows
    every step down if there are none.
    """
    zero = jnp.zeros_like(steps)
    if not record.thins:

        def simple(loop):
            i, carry = loop
            _, pull = take(i, record.state(i))
            return i - 1, pull(carry)

        return jax.lax.while_loop(lambda loop: loop[0] >= 0, simple, (steps - 1, carry))[1], zero

    size, stride = record.scratch, record.stride

    def lowest(start, top):
        """The first step of the stretch from a kept state to `top` that scratch has room for."""
        return jnp.maximum(start, top - size + 1)

    def act(loop):
        """Takes the step at `here`, and pulls through it if it is `top`, the next one to do."""
        top, here, low, state, scratch, again, carry = loop
        after, pull = take(here, state)
        ready = here == top
        if branch:
            carry = jax.lax.cond(ready, pull, lambda carry: carry, carry)
        else:
            carry = select(ready, pull(carry), carry)
        slot = jnp.where(ready, size, jnp.maximum(here + 1 - low, 0))
        scratch = jax.tree.map(lambda buffer, x: buffer.at[slot].set(x), scratch, after)

        top = jnp.where(ready, top - 1, top)
        fresh = ready & (top < low)
        start = jnp.maximum(top, 0) // stride * stride
        low = jnp.where(fresh, lowest(start, top), low)
        here = jnp.where(fresh, start, jnp.where(ready, top, here + 1))
        held = jax.tree.map(lambda buffer: buffer[jnp.maximum(here - low, 0)], scratch)
        held = select(here % stride == 0, record.state(jnp.maximum(here, 0)), held)
        state = select(ready, held, after)
        return top, here, low, state, scratch, again + jnp.where(ready, 0, 1), carry

    top = steps - 1
    start = jnp.maximum(top, 0) // stride * stride
    # apart from the kept states, which would be copied in every turn if they were written to
    scratch = jax.tree.map(lambda x: jnp.zeros((size + 1, *x.shape[1:]), x.dtype), record.states)
    loop = top, start, lowest(start, top), record.state(start), scratch, zero, carry
    end = jax.lax.while_loop(lambda loop: loop[0] >= 0, act, loop)
    return end[-1], end[-2]


def select(pred: Array, yes: PyTree, no: PyTree) -> PyTree:
    """`yes` where `pred`, `no` elsewhere, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), yes, no)

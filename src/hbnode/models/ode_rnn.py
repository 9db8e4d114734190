"""The recurrent model: a cell at each time stamp, a neural ODE across the gap to the next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics import AbstractDynamics, Paced
from ..solve import Checkpointed, Nystrom4
from .method import Method, Pass, failure_code
from .networks import Dense, Linear
from .ode_block import position

INTERVAL = (0.0, 1.0)
INTERVAL_STEPS = 2
"""Steps whose states are kept for the backward pass; most intervals take no more."""


def for_intervals(method: Method, dynamics: AbstractDynamics) -> Method:
    """The method with what suits many short intervals in the place of each `None`: the pair with
    the fewest stages, since every interval is begun anew, and room for few steps."""
    return method.or_else(dynamics, Nystrom4(), Checkpointed(INTERVAL_STEPS))


@final
class SumCell(eqx.Module):
    """state ↦ W x + Σ V_k (part k of the state), each map with its own bias."""

    of_input: Linear
    of_state: list[Linear]

    def __init__(self, inputs: int, size: int, parts: int, *, key):
        first, *rest = jax.random.split(key, 1 + parts)
        self.of_input = Linear(inputs, parts * size, key=first)
        self.of_state = [Linear(size, parts * size, key=k) for k in rest]

    def __call__(self, parts: tuple[Array, ...], x: Array) -> tuple[Array, ...]:
        new = self.of_input(x)
        for layer, part in zip(self.of_state, parts, strict=True):
            new = new + layer(part)
        return tuple(jnp.split(new, len(parts), axis=-1))


@final
class DenseCell(eqx.Module):
    """state ↦ state + network(state, x)."""

    net: Dense

    def __call__(self, parts: tuple[Array, ...], x: Array) -> tuple[Array, ...]:
        changes = jnp.split(self.net(jnp.concatenate([*parts, x], axis=-1)), len(parts), axis=-1)
        return tuple(part + change for part, change in zip(parts, changes, strict=True))


@final
class ZeroStart(eqx.Module):
    """An initial state of zeros."""

    size: int = eqx.field(static=True)
    parts: int = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "batch stamps channels"]) -> PyTree[Array]:
        zeros = jnp.zeros((inputs.shape[0], self.size), inputs.dtype)
        return zeros if self.parts == 1 else (zeros,) * self.parts


@final
class LinearStart(eqx.Module):
    """An initial state made of all inputs by one linear map, zeros after what it yields."""

    layer: Linear
    size: int = eqx.field(static=True)
    parts: int = eqx.field(static=True)

    def __call__(self, inputs: Float[Array, "batch stamps channels"]) -> PyTree[Array]:
        y = self.layer(inputs.reshape(inputs.shape[0], -1))
        y = jnp.pad(y, ((0, 0), (0, self.parts * self.size - y.shape[-1])))
        return y if self.parts == 1 else tuple(jnp.split(y, self.parts, axis=-1))


class Sequence(NamedTuple):
    """What the recurrent model makes of a batch of sequences."""

    outputs: Float[Array, "batch stamps channels"]
    """At each stamp the prediction for the end of the gap that follows."""
    forecasts: Float[Array, "batch horizons channels"] | None
    """The predictions at the horizons after the last stamp."""


@final
class OdeRnn(eqx.Module):
    """At each stamp: state ← cell(state, x); state ← solution after the gap; output = readout(h).

    The samples of a batch have gaps of their own and are solved as one system, each at its own
    pace (`hbnode.dynamics.Paced`). Forecasts lengthen the last interval: the solution goes on from
    one horizon to the next without a cell between.

    **Arguments:** `dynamics`: any family. `start`: from the inputs to the initial state. `cell`:
    from the parts of the state (h, or h and m) and x to new parts. `readout`: from h to an output.
    `clip`: the largest ℓ2 norm of the adjoint state of a sample that is passed on from stamp to
    stamp in the backward pass; 0 leaves it as it is.
    """

    dynamics: AbstractDynamics
    start: Callable
    cell: Callable
    readout: Callable
    clip: float = eqx.field(static=True, default=0.0)

    def __call__(
        self,
        inputs: Float[Array, "batch stamps channels"],
        gaps: Float[Array, "batch stamps"],
        method: Method,
        *,
        horizons: Float[Array, "batch horizons"] | None = None,
        jumps: PyTree[Array] = None,
        probe=None,
    ) -> tuple[Sequence, Pass]:
        """`horizons` count from the last stamp, the first of them being the last gap, and increase.
        `jumps`, of zeros, are added to the state before each cell: the gradient with respect to
        them is the adjoint state at each stamp."""
        method = for_intervals(method, self.dynamics)
        state = self.start(inputs)
        carry = (state, jnp.ones((), inputs.dtype), jnp.array(0), jnp.array(0))

        def cross(carry, gap):
            """One interval."""
            state, dt, nfe, failure = carry
            sol = method.solve(
                Paced(self.dynamics, gap),
                state,
                jnp.array(INTERVAL, gap.dtype),
                dt0=dt if method.warm_start else None,
                probe=probe,
            )
            state = jax.tree.map(lambda y: y[-1], sol.ys)
            failure = jnp.where(failure == 0, failure_code(sol), failure)
            dt = jnp.where(failure == 0, sol.dt, dt)
            return (state, dt, nfe + sol.stats.nfe, failure), self.readout(position(state))

        def stamp(carry, at_stamp):
            x, gap, jump = at_stamp
            state, *rest = carry
            if jump is not None:
                state = jax.tree.map(jnp.add, state, jump)
            if self.clip > 0:
                state = clip_adjoint(self.clip, state)
            parts = self.cell(state if isinstance(state, tuple) else (state,), x)
            state = parts if isinstance(state, tuple) else parts[0]
            return cross((state, *rest), gap)

        def by_stamp(x):
            return jnp.swapaxes(x, 0, 1)

        carry, outputs = jax.lax.scan(stamp, carry, (by_stamp(inputs), by_stamp(gaps), jumps))
        outputs = by_stamp(outputs)
        forecasts = None
        if horizons is not None:
            carry, rest = jax.lax.scan(cross, carry, by_stamp(jnp.diff(horizons, axis=1)))
            forecasts = jnp.concatenate([outputs[:, -1:], by_stamp(rest)], axis=1)
        _, _, nfe, failure = carry
        return Sequence(outputs, forecasts), Pass(nfe, failure)

    def adjoint_norms(
        self,
        inputs: Float[Array, "batch stamps channels"],
        gaps: Float[Array, "batch stamps"],
        method: Method,
        loss: Callable[[Array], Array],
    ) -> Float[Array, " stamps"]:
        """The ℓ2 norm over the batch of the adjoint state that arrives at each stamp, for a loss of
        the last output alone. Nothing is clipped."""
        model = OdeRnn(self.dynamics, self.start, self.cell, self.readout)
        state = jax.eval_shape(model.start, inputs)
        jumps = jax.tree.map(lambda y: jnp.zeros((inputs.shape[1], *y.shape), y.dtype), state)

        def last(jumps):
            return loss(model(inputs, gaps, method, jumps=jumps)[0].outputs[:, -1])

        adjoints = jax.tree.leaves(jax.grad(last)(jumps))
        return jnp.sqrt(sum(jnp.sum(jnp.square(a), axis=(1, 2)) for a in adjoints))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def clip_adjoint(limit: float, state: PyTree[Array]) -> PyTree[Array]:
    """The state itself; in the backward pass the ℓ2 norm of the adjoint of each sample is cut to
    `limit`."""
    return state


def _clip_forward(limit, state):
    return state, None


def _clip_backward(limit, _, adjoint):
    squares = sum(jnp.sum(jnp.square(a), axis=-1) for a in jax.tree.leaves(adjoint))
    scale = jnp.minimum(1.0, limit / jnp.sqrt(jnp.maximum(squares, limit**2)))
    return (jax.tree.map(lambda a: scale[:, None] * a, adjoint),)


clip_adjoint.defvjp(_clip_forward, _clip_backward)

"""A model around one solve: input, initial state, solution at t = 1, readout."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..dynamics import ANODE, AbstractDynamics
from .method import Method, Pass, failure_code


@final
class OdeBlock(eqx.Module):
    """x ↦ readout(h(1)) with h(0), and for a second-order family the initial velocity, made of x.

    **Arguments:** `dynamics`: any family. `start`: the initial network of a second-order family, a
    callable from x to the pair (h0, m0); `None` for NODE and ANODE. `readout`: a callable from h(1)
    to the outputs.
    """

    dynamics: AbstractDynamics
    start: Callable | None
    readout: Callable

    def lift(self, x: Float[Array, "batch *shape"]) -> PyTree[Array]:
        """The initial state."""
        if self.start is not None:
            return self.start(x)
        return self.dynamics.lift(x) if isinstance(self.dynamics, ANODE) else x

    def __call__(
        self, x: Float[Array, "batch *shape"], method: Method, probe=None
    ) -> tuple[Array, Pass]:
        sol = method.solve(self.dynamics, self.lift(x), jnp.array([0.0, 1.0], x.dtype), probe=probe)
        outputs = self.readout(position(jax.tree.map(lambda y: y[-1], sol.ys)))
        return outputs, Pass(sol.stats.nfe, failure_code(sol))

    def trajectory(
        self, x: Float[Array, "batch *shape"], ts: Float[Array, " times"], method: Method
    ) -> Float[Array, "times batch *state"]:
        """The positions at the times `ts`, the first of which is 0."""
        return position(method.solve(self.dynamics, self.lift(x), ts).ys)


def position(state: PyTree[Array]) -> Array:
    """h, whether the state is h or (h, m)."""
    return state[0] if isinstance(state, tuple) else state

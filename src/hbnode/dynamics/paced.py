"""Samples of one batch on clocks of their own: Paced."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .base import AbstractDynamics, NystromForm


@final
class Paced(AbstractDynamics):
    r"""The dynamics y' = g(s, y) with a pace p for each sample of the batch,

    $$\frac{dy_i}{ds} = p_i\, g(s, y_i),$$

    so that a solve over s from 0 to 1 carries sample i over a span of length $p_i$ of its own
    time, all samples as one system with one error norm. Recurrent models use it for batches whose
    samples have different time gaps. The field is given s, not the sample's own time.

    **Arguments:** `dynamics`: any family. `pace`: one positive number for each sample; its shape is
    that of the leading axes of h.

    ```python
    hbnode.solve(Paced(hbnode.NODE(lambda t, h, args: -h), gaps), h0, [0.0, 1.0])
    ```
    """

    dynamics: AbstractDynamics
    pace: Float[Array, "*batch"]

    def __init__(self, dynamics: AbstractDynamics, pace: Float[Array, "*batch"]):
        if isinstance(dynamics, Paced):
            raise TypeError("Paced of Paced: multiply the paces instead.")
        self.dynamics = dynamics
        self.pace = pace

    @property
    def field(self) -> Callable:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.dynamics.field

    def check_state(self, y: PyTree) -> None:
        self.dynamics.check_state(y)
        h = y[0] if isinstance(y, (tuple, list)) else y
        pace, shape = jnp.shape(self.pace), jnp.shape(h)
        if shape[: len(pace)] != pace:
            raise ValueError(
                f"`pace` must have one number for each sample: its shape {pace} is not how the "
                f"shape {shape} of h begins."
            )

    def evaluate(self, t, y, args):
        return self.dynamics.evaluate(t, y, args)

    def field_state(self, y):
        return self.dynamics.field_state(y)

    def rate(self, y, f):
        rate = self.dynamics.rate(y, f)
        if isinstance(rate, tuple):
            return tuple(along_samples(self.pace, r) * r for r in rate)
        return along_samples(self.pace, rate) * rate

    def resolve(self) -> Paced:
        return Paced(self.dynamics.resolve(), self.pace)

    def nystrom_form(self) -> NystromForm:
        return self.dynamics.nystrom_form()._replace(pace=self.pace)


def along_samples(x: Array, like: Array) -> Array:
    """`x`, with a value for each sample, broadcast against `like` over the axes that follow."""
    x = jnp.asarray(x, like.dtype)
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))


def unpaced(dynamics: AbstractDynamics) -> AbstractDynamics:
    """The dynamics without their pace."""
    return dynamics.dynamics if isinstance(dynamics, Paced) else dynamics

"""Neural ODEs of first order: NODE and ANODE."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .base import AbstractDynamics, NystromForm
from .checks import check_position


def _no_nystrom_form(family: str) -> ValueError:
    return ValueError(
        f"{family} is of first order and has no Nyström form. Use a Runge–Kutta solver such as "
        "diffrax.Dopri5(), or the second-order family hbnode.HBNODE."
    )


@final
class NODE(AbstractDynamics):
    r"""A neural ODE (paper, eq. 1),

    $$h'(t) = f(t, h).$$

    The state is one array of any shape.

    **Arguments:** `field`: a callable `(t, h, args) -> f`, with `f` shaped like `h`.

    ```python
    hbnode.NODE(lambda t, h, args: -h)
    ```
    """

    field: Callable

    def check_state(self, y: PyTree) -> None:
        check_position(y, "y0", "NODE", "A NODE state is h alone, without a momentum.")

    def evaluate(self, t, y, args):
        return self.field(t, y, args)

    def field_state(self, y):
        return y

    def rate(self, y, f):
        return f

    def resolve(self) -> NODE:
        return self

    def nystrom_form(self) -> NystromForm:
        raise _no_nystrom_form("NODE")


@final
class ANODE(AbstractDynamics):
    r"""An augmented neural ODE: a NODE on a state with p more channels that start at zero,

    $$\frac{d}{dt}\begin{bmatrix}h\\ a\end{bmatrix} = f(t, [h, a]), \qquad
      h(0) = x,\ a(0) = 0 \in \mathbb{R}^p.$$

    `solve` integrates the augmented state; `lift` makes it from the input.

    **Arguments:** `field`: a callable `(t, h, args) -> f` on the augmented state.
    `augment`: the number p of channels added. `axis`: the channel axis, −1 for vectors and
    −3 for images laid out as (channel, height, width).

    ```python
    dynamics = hbnode.ANODE(field, augment=3)
    sol = hbnode.solve(dynamics, dynamics.lift(x), ts)
    ```
    """

    field: Callable
    augment: int = eqx.field(static=True)
    axis: int = eqx.field(static=True, default=-1)

    def __check_init__(self):
        if isinstance(self.augment, bool) or not isinstance(self.augment, int) or self.augment < 0:
            raise ValueError(
                f"`augment` must be the number of channels to add, 0 or more; got {self.augment!r}."
            )

    def lift(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """`x` with `augment` channels of zeros behind its own."""
        if not -x.ndim <= self.axis < x.ndim:
            raise ValueError(
                f"ANODE.lift: x of shape {x.shape} has no axis {self.axis} to add channels to."
            )
        shape = list(x.shape)
        shape[self.axis] = self.augment
        return jnp.concatenate([x, jnp.zeros(shape, x.dtype)], axis=self.axis)

    def check_state(self, y: PyTree) -> None:
        hint = "An ANODE state is h alone, augmented by `ANODE.lift`."
        check_position(y, "y0", "ANODE", hint)
        shape = jnp.shape(y)
        channels = shape[self.axis] if -len(shape) <= self.axis < len(shape) else 0
        if channels < self.augment:
            raise ValueError(
                f"ANODE: y0 of shape {shape} has {channels} channels on axis {self.axis}, fewer "
                f"than the {self.augment} that were added. Pass y0 = dynamics.lift(x)."
            )

    def evaluate(self, t, y, args):
        return self.field(t, y, args)

    def field_state(self, y):
        return y

    def rate(self, y, f):
        return f

    def resolve(self) -> ANODE:
        return self

    def nystrom_form(self) -> NystromForm:
        raise _no_nystrom_form("ANODE")

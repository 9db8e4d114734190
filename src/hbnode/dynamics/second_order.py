"""Second-order neural ODEs whose field may read the velocity: SONODE."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from jaxtyping import PyTree

from .base import AbstractDynamics, NystromForm
from .checks import check_pair


@final
class SONODE(AbstractDynamics):
    r"""A second-order neural ODE (paper, appendix A.2),

    $$h'(t) = v(t), \qquad v'(t) = f(t, h, v).$$

    The state is the pair (h, v) of arrays of one shape.

    **Arguments:** `field`: a callable `(t, (h, v), args) -> f`, with `f` shaped like `h`.
    """

    field: Callable

    def check_state(self, y: PyTree) -> None:
        check_pair(y, "SONODE", "v")

    def evaluate(self, t, y, args):
        return self.field(t, tuple(y), args)

    def field_state(self, y):
        return tuple(y)

    def rate(self, y, f):
        _, v = y
        return v, f

    def resolve(self) -> SONODE:
        return self

    def nystrom_form(self) -> NystromForm:
        raise ValueError(
            "The field of a SONODE reads the velocity, which a Nyström method does not provide: "
            "it would lose its order without a word. Use a Runge–Kutta solver such as "
            "diffrax.Dopri5(), or hbnode.HBNODE(field, gamma=...) where the field needs only h."
        )

"""RKN 5(4)."""

from __future__ import annotations

from typing import final

from .base import AbstractNystrom, NystromTableau, fractions

_TABLEAU = NystromTableau(
    c=fractions(0, "1/8", "1/4", "1/2", "3/4", 1),
    a=(
        fractions(),
        fractions("1/128"),
        fractions("1/96", "1/48"),
        fractions("1/24", 0, "1/12"),
        fractions("9/128", 0, "9/64", "9/128"),
        fractions("7/90", 0, "4/15", "1/15", "4/45"),
    ),
    b=fractions("7/90", 0, "4/15", "1/15", "4/45", 0),
    db=fractions("7/90", 0, "16/45", "2/15", "16/45", "7/90"),
    b_hat=fractions("1/6", 0, 0, "1/3", 0, 0),
    db_hat=fractions(0, 0, "2/3", "-1/3", "2/3", 0),
)


@final
class Nystrom5(AbstractNystrom):
    """The Nyström pair 5(4) of Bettis: order 5 (6 in the position) with an embedded order 4, six
    stages of which five are new in each step.

    ??? cite "Reference"
        D. G. Bettis: A Runge–Kutta Nyström algorithm. Celestial Mechanics 8 (1973), 229–233.
    """

    @property
    def tableau(self) -> NystromTableau:
        return _TABLEAU

    @property
    def order(self) -> int:
        return 5

    @property
    def embedded_order(self) -> int:
        return 4

    @property
    def error_scale(self) -> float:
        return 0.03

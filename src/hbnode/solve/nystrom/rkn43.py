"""RKN 4(3)."""

from __future__ import annotations

from typing import final

from .base import AbstractNystrom, NystromTableau, fractions

_TABLEAU = NystromTableau(
    c=fractions(0, "1/4", "7/10", 1),
    a=(
        fractions(),
        fractions("1/32"),
        fractions("7/1000", "119/500"),
        fractions("1/14", "8/27", "25/189"),
    ),
    b=fractions("1/14", "8/27", "25/189", 0),
    db=fractions("1/14", "32/81", "250/567", "5/54"),
    b_hat=fractions("-7/150", "67/150", "3/20", "-1/20"),
    db_hat=fractions("13/21", "-20/27", "275/189", "-1/3"),
)


@final
class Nystrom4(AbstractNystrom):
    """The Nyström pair RKN4(3)4FM of Dormand, El-Mikkawy and Prince: order 4 with an embedded
    order 3, four stages of which three are new in each step.

    ??? cite "Reference"
        J. R. Dormand, M. E. A. El-Mikkawy, P. J. Prince: Families of Runge–Kutta–Nyström formulae.
        IMA Journal of Numerical Analysis 7 (1987), 235–250.
    """

    @property
    def tableau(self) -> NystromTableau:
        return _TABLEAU

    @property
    def order(self) -> int:
        return 4

    @property
    def embedded_order(self) -> int:
        return 3

    @property
    def error_scale(self) -> float:
        return 0.01

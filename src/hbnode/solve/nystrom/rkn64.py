"""RKN 6(4)."""

from __future__ import annotations

from typing import final

from .base import AbstractNystrom, NystromTableau, fractions

_TABLEAU = NystromTableau(
    c=fractions(0, "1/10", "3/10", "7/10", "17/25", 1),
    a=(
        fractions(),
        fractions("1/200"),
        fractions("-1/2200", "1/22"),
        fractions("637/6600", "-7/110", "7/33"),
        fractions("225437/1968750", "-30073/281250", "65569/281250", "-9367/984375"),
        fractions("151/2142", "5/116", "385/1368", "55/168", "-6250/28101"),
    ),
    b=fractions("151/2142", "5/116", "385/1368", "55/168", "-6250/28101", 0),
    db=fractions("151/2142", "25/522", "275/684", "275/252", "-78125/112404", "1/12"),
    b_hat=fractions("1349/157500", "7873/50000", "192199/900000", "521683/2100000", "-16/125", 0),
    db_hat=fractions("1349/157500", "7873/45000", "27457/90000", "521683/630000", "-2/5", "1/12"),
)


@final
class Nystrom6(AbstractNystrom):
    """The Nyström pair RKN6(4)6FM of Dormand, El-Mikkawy and Prince: order 6 with an embedded
    order 4, six stages of which five are new in each step.

    ??? cite "Reference"
        J. R. Dormand, M. E. A. El-Mikkawy, P. J. Prince: Families of Runge–Kutta–Nyström formulae.
        IMA Journal of Numerical Analysis 7 (1987), 235–250.
    """

    @property
    def tableau(self) -> NystromTableau:
        return _TABLEAU

    @property
    def order(self) -> int:
        return 6

    @property
    def embedded_order(self) -> int:
        return 4

    @property
    def error_scale(self) -> float:
        return 0.2

"""RKN 8(6)."""

from __future__ import annotations

from typing import final

from .base import AbstractNystrom, NystromTableau, fractions

_TABLEAU = NystromTableau(
    c=fractions(0, "1/20", "1/10", "3/10", "1/2", "7/10", "9/10", 1, 1),
    a=(
        fractions(),
        fractions("1/800"),
        fractions("1/600", "1/300"),
        fractions("9/200", "-9/100", "9/100"),
        fractions("-66701/197352", "28325/32892", "-2665/5482", "2170/24669"),
        fractions(
            "227015747/304251000", "-54897451/30425100", "12942349/10141700", "-9499/304251",
            "539/9250",
        ),
        fractions(
            "-1131891597/901789000", "41964921/12882700", "-6663147/3220675", "270954/644135",
            "-108/5875", "114/1645",
        ),
        fractions(
            "13836959/3667458", "-17731450/1833729", "1063919505/156478208", "-33213845/39119552",
            "13335/28544", "-705/14272", "1645/57088",
        ),
        fractions(
            "223/7938", 0, "1175/8064", "925/6048", "41/448", "925/14112", "1175/72576", 0
        ),
    ),
    b=fractions("223/7938", 0, "1175/8064", "925/6048", "41/448", "925/14112", "1175/72576", 0, 0),
    db=fractions(
        "223/7938", 0, "5875/36288", "4625/21168", "41/224", "4625/21168", "5875/36288",
        "223/7938", 0,
    ),
    b_hat=fractions(
        "7987313/109941300", 0, "1610737/44674560", "10023263/33505920", "-497221/12409600",
        "10023263/78180480", "1610737/402071040", 0, 0,
    ),
    db_hat=fractions(
        "7987313/109941300", 0, "1610737/40207104", "10023263/23454144", "-497221/6204800",
        "10023263/23454144", "1610737/40207104", "-4251941/54970650", "3/20",
    ),
)  # fmt: skip


@final
class Nystrom8(AbstractNystrom):
    """The Nyström pair RKN8(6)9FM of Dormand, El-Mikkawy and Prince: order 8 with an embedded
    order 6, nine stages of which eight are new in each step.

    ??? cite "Reference"
        J. R. Dormand, M. E. A. El-Mikkawy, P. J. Prince: High-order embedded
        Runge–Kutta–Nyström formulae. IMA Journal of Numerical Analysis 7 (1987), 423–430.
    """

    @property
    def tableau(self) -> NystromTableau:
        return _TABLEAU

    @property
    def order(self) -> int:
        return 8

    @property
    def embedded_order(self) -> int:
        return 6

    @property
    def error_scale(self) -> float:
        return 0.007

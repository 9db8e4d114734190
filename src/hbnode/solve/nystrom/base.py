r"""Runge–Kutta–Nyström pairs for heavy balls.

With u = e^{γ s/2} h, s measured from the start of the step, the heavy ball

$$h'' + \gamma h' = g(t, h)$$

becomes u'' = e^{γ s/2} g(t, e^{−γ s/2} u) + (γ²/4) u, whose right-hand side does not read the
velocity. A Nyström pair applied to u needs far fewer evaluations of g than a Runge–Kutta pair
applied to (h, h') at the same error.
"""

from __future__ import annotations

import abc
from fractions import Fraction
from typing import NamedTuple

import equinox as eqx

Row = tuple[Fraction, ...]


def fractions(*entries: str | int) -> Row:
    """A row of exact coefficients, each written as in its paper."""
    return tuple(Fraction(entry) for entry in entries)


class NystromTableau(NamedTuple):
    r"""The coefficients of an embedded pair for y'' = g(t, y):

    $$Y_i = y_0 + c_i \Delta y_0' + \Delta^2 \sum_j a_{ij} G_j, \qquad
      G_i = g(t_0 + c_i\Delta, Y_i),$$
    $$y_1 = y_0 + \Delta y_0' + \Delta^2 \sum_i b_i G_i, \qquad
      y_1' = y_0' + \Delta \sum_i b'_i G_i,$$

    and the same with $\hat b, \hat b'$ for the embedded solution. The last stage is the first of
    the next step (FSAL): $c_s = 1$, $a_{sj} = b_j$, $b_s = 0$.
    """

    c: Row
    a: tuple[Row, ...]
    b: Row
    db: Row
    b_hat: Row
    db_hat: Row

    @property
    def stages(self) -> int:
        return len(self.c)


class AbstractNystrom(eqx.Module):
    """A solver for dynamics with a Nyström form: HBNODE, and GHBNODE with identity gate."""

    @property
    @abc.abstractmethod
    def tableau(self) -> NystromTableau:
        """The coefficients as exact fractions."""

    @property
    @abc.abstractmethod
    def order(self) -> int:
        """The order of the solution that is carried on."""

    @property
    @abc.abstractmethod
    def embedded_order(self) -> int:
        """The order of the embedded solution, which the error estimate is made from."""

    @property
    @abc.abstractmethod
    def error_scale(self) -> float:
        """What the difference of the two solutions is multiplied by to estimate the error.

        The difference measures the embedded solution, while the other one is carried on; taken as
        it stands it asks for a far smaller error than the tolerance says. The factor makes the
        error reached at a given tolerance that of Dopri5 or a little smaller; it was measured by
        `benchmarks/work_precision.py --calibrate` on trained fields.
        """

"""What a stepper integrates: a state, an expensive evaluation, and a cheap rate.

Every evaluation is counted once. The rate, the acceleration and the integrand are read off an
evaluation without calling the field again.
"""

from __future__ import annotations

import abc

import equinox as eqx
from jaxtyping import Array, PyTree

from ..dynamics import AbstractDynamics
from ..dynamics.parameters import cast_like


class AbstractSystem(eqx.Module):
    """y' = rate(y, f) with f = evaluate(t, y), and q' = integrand(t, y, f) beside it.

    q is a quadrature: nothing depends on it, so its error need not be controlled.
    """

    @abc.abstractmethod
    def evaluate(self, t: Array, y: PyTree) -> PyTree:
        """The expensive part at (t, y): one NFE."""

    @abc.abstractmethod
    def rate(self, y: PyTree, f: PyTree) -> PyTree:
        """y' at a state whose evaluation is f."""

    @abc.abstractmethod
    def integrand(self, t: Array, y: PyTree, f: PyTree) -> PyTree:
        """q' there; `None` where there is no quadrature."""


class AbstractNystromSystem(AbstractSystem):
    """A system whose state is a pair (positions, velocities) with

    position'' + damping · position' = acceleration(position, f),  f = evaluate(t, position).

    `evaluate` and `integrand` must not read the velocities.
    """

    @abc.abstractmethod
    def damping(self) -> PyTree:
        """One scalar for each leaf of the positions."""

    @abc.abstractmethod
    def pace(self) -> Array | None:
        """How fast the clock of each sample goes; `None` where all go alike."""

    @abc.abstractmethod
    def acceleration(self, position: PyTree, f: PyTree) -> PyTree:
        """The right-hand side, without the damping."""


class ForwardSystem(AbstractNystromSystem):
    """The dynamics themselves; where they have a Nyström form, h'' + γ h' = f(t, h) − ξ h."""

    dynamics: AbstractDynamics
    args: PyTree

    def evaluate(self, t, y):
        return self.dynamics.evaluate(t, y, self.args)

    def rate(self, y, f):
        return self.dynamics.rate(y, f)

    def integrand(self, t, y, f):
        return None

    def damping(self):
        return self.dynamics.nystrom_form().gamma

    def pace(self):
        return self.dynamics.nystrom_form().pace

    def acceleration(self, position, f):
        xi = self.dynamics.nystrom_form().xi
        return f if xi is None else f - cast_like(xi, position) * position

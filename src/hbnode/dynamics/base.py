"""What every family of neural ODEs has: a field, a state, and a rate of change."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, PyTree


class NystromForm(NamedTuple):
    """The coefficients of h'' + γ h' = f(t, h) − ξ h, an equation whose right-hand side is free
    of the velocity once the damping is transformed away (see `hbnode.solve.nystrom`), and the pace
    of each sample where they differ (see [`Paced`][])."""

    gamma: Any
    xi: Any
    pace: Any = None


class AbstractDynamics(eqx.Module):
    """WHAT is integrated: y' = rate(y, f) with f = evaluate(t, y, args).

    The two are apart because the field f is the only expensive part: a solver counts calls of
    `evaluate` (one NFE each) and may call `rate` as often as it likes.
    """

    field: eqx.AbstractVar[Callable]

    @abc.abstractmethod
    def check_state(self, y: PyTree) -> None:
        """Raises a `TypeError` or `ValueError` where `y` is not a state of this family."""

    @abc.abstractmethod
    def evaluate(self, t: Array, y: PyTree, args: PyTree) -> Array:
        """The field f at (t, y)."""

    @abc.abstractmethod
    def field_state(self, y: PyTree) -> PyTree:
        """The part of the state that the field reads."""

    @abc.abstractmethod
    def rate(self, y: PyTree, f: Array) -> PyTree:
        """y' given the state and the field's value there."""

    def vector_field(self, t: Array, y: PyTree, args: PyTree) -> PyTree:
        """y' at (t, y): the form that other solvers, such as diffrax's, take."""
        return self.rate(y, self.evaluate(t, y, args))

    @abc.abstractmethod
    def resolve(self) -> "AbstractDynamics":
        """The same dynamics with γ and ξ as numbers."""

    @abc.abstractmethod
    def nystrom_form(self) -> NystromForm:
        """The coefficients of the Nyström form, or a `ValueError` that says why there is none."""

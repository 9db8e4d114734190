"""The heavy-ball families: HBNODE and GHBNODE."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .base import AbstractDynamics, NystromForm
from .checks import check_pair
from .parameters import Damping, Restoring, cast_like, check_coefficient, coefficient_value


@final
class HBNODE(AbstractDynamics):
    r"""A heavy-ball neural ODE (paper, eqs. 9 and 10),

    $$h'(t) = m(t), \qquad m'(t) = -\gamma\, m(t) + f(t, h),$$

    that is, h'' + γ h' = f(t, h). The state is the pair (h, m) of arrays of one shape.

    **Arguments:** `field`: a callable `(t, h, args) -> f`, with `f` shaped like `h`.
    `gamma`: the damping γ ≥ 0: a [`Damping`][] to learn it, or a plain number to fix it.

    ```python
    hbnode.HBNODE(field)                # learnable, γ starts at sigmoid(-3)
    hbnode.HBNODE(field, gamma=0.5)     # fixed
    ```
    """

    field: Callable
    gamma: Damping | float | Float[Array, ""]

    def __init__(self, field: Callable, gamma=None):
        self.field = field
        self.gamma = check_coefficient(Damping() if gamma is None else gamma, "gamma", Damping)

    def check_state(self, y: PyTree) -> None:
        check_pair(y, "HBNODE", "m")

    def evaluate(self, t, y, args):
        return self.field(t, y[0], args)

    def field_state(self, y):
        return y[0]

    def rate(self, y, f):
        _, m = y
        return m, f - cast_like(coefficient_value(self.gamma), m) * m

    def resolve(self) -> HBNODE:
        return HBNODE(self.field, coefficient_value(self.gamma))

    def nystrom_form(self) -> NystromForm:
        return NystromForm(coefficient_value(self.gamma), None)


@final
class GHBNODE(AbstractDynamics):
    r"""A generalised heavy-ball neural ODE (paper, eq. 15),

    $$h'(t) = \sigma(m(t)), \qquad m'(t) = -\gamma\, m(t) + f(t, h) - \xi\, h(t).$$

    The gate σ bounds the velocity and the restoring term pulls h back, so that ‖h‖ stays small
    where that of an HBNODE grows. With ξ = 0 and σ the identity this is the HBNODE.

    **Arguments:** `field`: a callable `(t, h, args) -> f`, with `f` shaped like `h`.
    `gamma`: the damping γ ≥ 0, a [`Damping`][] or a plain number. `xi`: the coefficient ξ ≥ 0, a
    [`Restoring`][] or a plain number. `gate`: the elementwise function σ.
    """

    field: Callable
    gamma: Damping | float | Float[Array, ""]
    xi: Restoring | float | Float[Array, ""]
    gate: Callable

    def __init__(self, field: Callable, gamma=None, xi=None, gate: Callable = jnp.tanh):
        self.field = field
        self.gamma = check_coefficient(Damping() if gamma is None else gamma, "gamma", Damping)
        self.xi = check_coefficient(Restoring() if xi is None else xi, "xi", Restoring)
        if not callable(gate):
            raise TypeError(
                f"`gate` must be an elementwise function such as jnp.tanh, got {gate!r}. "
                "For no gate pass the identity, `lambda m: m`."
            )
        self.gate = gate

    def check_state(self, y: PyTree) -> None:
        check_pair(y, "GHBNODE", "m")

    def evaluate(self, t, y, args):
        return self.field(t, y[0], args)

    def field_state(self, y):
        return y[0]

    def rate(self, y, f):
        h, m = y
        gamma = cast_like(coefficient_value(self.gamma), m)
        xi = cast_like(coefficient_value(self.xi), h)
        return self.gate(m), f - gamma * m - xi * h

    def resolve(self) -> GHBNODE:
        return GHBNODE(
            self.field, coefficient_value(self.gamma), coefficient_value(self.xi), self.gate
        )

    def nystrom_form(self) -> NystromForm:
        if not is_identity(self.gate):
            raise ValueError(
                "A GHBNODE whose gate is not the identity couples h' to m non-linearly and has no "
                "Nyström form: a Nyström method would lose its order without a word. Use a "
                "Runge–Kutta solver such as diffrax.Dopri5(), or gate=lambda m: m."
            )
        return NystromForm(coefficient_value(self.gamma), coefficient_value(self.xi))


def identity(m: Array) -> Array:
    """No gate at all."""
    return m


def is_identity(gate: Callable) -> bool:
    """Whether `gate` returns its argument untouched, read off its trace."""
    if gate is identity:
        return True
    try:
        jaxpr = jax.make_jaxpr(gate)(jnp.zeros(1)).jaxpr
    except (TypeError, ValueError):  # it needs another shape or dtype, so it does something
        return False
    if len(jaxpr.eqns) == 1 and "jaxpr" in jaxpr.eqns[0].params:  # a jitted identity
        jaxpr = jaxpr.eqns[0].params["jaxpr"].jaxpr
    return not jaxpr.eqns and list(jaxpr.outvars) == list(jaxpr.invars)

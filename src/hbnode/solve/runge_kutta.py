"""Explicit Runge–Kutta steps with diffrax's tableaux."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast, final

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from .stepper import AbstractStepper, Step, add_scaled, combine, scaled
from .systems import AbstractSystem


class ExplicitTableau(NamedTuple):
    """An explicit Runge–Kutta method whose last stage is f at the end of the step."""

    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b_error: tuple[float, ...] | None


def explicit_tableau(solver) -> ExplicitTableau:
    """The tableau of one of diffrax's explicit Runge–Kutta solvers, a stage at the end added
    where it has none."""
    if isinstance(solver, diffrax.Euler):
        return ExplicitTableau((0.0, 1.0), ((), (1.0,)), None)
    tableau = solver.tableau
    c = (0.0, *map(float, tableau.c))
    a = ((), *(tuple(map(float, row)) for row in tableau.a_lower))
    b_error = tuple(map(float, tableau.b_error))
    if not tableau.fsal:
        c, a = (*c, 1.0), (*a, tuple(map(float, tableau.b_sol)))
    return ExplicitTableau(c, a, b_error)


@final
class RungeKutta(AbstractStepper):
    """An explicit Runge–Kutta method of diffrax on y' = rate(y, f)."""

    system: AbstractSystem
    tableau: ExplicitTableau = eqx.field(static=True)
    interpolation: Callable = eqx.field(static=True)
    evaluations: int = eqx.field(static=True)
    error_order: int = eqx.field(static=True)
    adaptive: bool = eqx.field(static=True)
    lands: bool = eqx.field(static=True, default=False)

    def __init__(self, solver, system: AbstractSystem):
        self.system = system
        self.tableau = explicit_tableau(solver)
        own = not isinstance(solver, diffrax.Euler) and solver.tableau.fsal
        self.interpolation = solver.interpolation_cls if own else _hermite
        self.evaluations = len(self.tableau.c) - 1
        self.adaptive = self.tableau.b_error is not None
        self.error_order = cast(int, solver.error_order(None)) if self.adaptive else 0

    def step(self, t, dt, y, f):
        c, a, b_error = self.tableau
        system = self.system
        k, q = [system.rate(y, f)], [system.integrand(t, y, f)]
        y1 = y
        for c_i, a_i in zip(c[1:], a[1:], strict=True):
            y1 = add_scaled(y, dt, combine(a_i, k))
            t_i = t + dt if c_i == 1 else t + c_i * dt
            f = system.evaluate(t_i, y1)
            k.append(system.rate(y1, f))
            q.append(system.integrand(t_i, y1, f))
        error = None if b_error is None else scaled(dt, combine(b_error, k))
        q_error = None if b_error is None else scaled(dt, combine(b_error, q))
        return Step(y1, f, error, scaled(dt, combine(a[-1], q)), q_error, (y, y1, k))

    def interpolate(self, dense, dt, theta):
        y0, y1, k = dense
        k = jax.tree.map(lambda *leaves: dt * jnp.stack(leaves), *k)
        zero, one = jnp.zeros_like(theta), jnp.ones_like(theta)
        return self.interpolation(t0=zero, t1=one, y0=y0, y1=y1, k=k).evaluate(theta)


def _hermite(*, t0, t1, y0, y1, k):
    """The cubic through values and slopes at both ends, for methods without their own."""
    ends = [jax.tree.map(lambda x, i=i: x[i], k) for i in (0, -1)]
    return diffrax.ThirdOrderHermitePolynomialInterpolation(
        t0=t0, t1=t1, y0=y0, y1=y1, k0=ends[0], k1=ends[1]
    )

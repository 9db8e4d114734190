r"""Nyström steps with the damping transformed away.

In u = e^{γ s/2}·position the stages of a Nyström pair are linear in u₀, u₀' and the accelerations
g_j = g(t_j, position_j), apart from the term (γ²/4) u, which is linear too. Eliminating it once and
for all leaves, for each stage and each result of a step, one linear combination

$$w_h\, h_0 + w_m\, m_0 + \sum_j w_j\, g_j$$

of arrays, whose weights are functions of γ and Δ alone. So the damping costs nothing but a few
operations on small matrices, and nothing at all is lost in the arrays where γ is large.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, PyTree

from ...dynamics.paced import along_samples
from ..stepper import AbstractStepper, Step, combine, scaled
from ..systems import AbstractNystromSystem
from .base import AbstractNystrom, NystromTableau


class _Weights(NamedTuple):
    """The weights of (h₀, m₀, g₁, …, g_s) in each row, and what their derivatives need.

    Rows: the stages after the first (the last of which is the new position), the new velocity,
    the errors of position and velocity.
    """

    gamma: Array
    dt: Array
    value: Array
    by_gamma: Array
    by_dt: Array


@functools.cache
def _polynomials(tableau: NystromTableau, error_scale: float) -> np.ndarray:
    r"""The rows as polynomials in z = (γΔ/2)², on the columns (u₀, Δ u₀', Δ² E g).

    With G = E g + (γ²/4) U and U = u₀ + c Δ u₀' + Δ² A G follows (I − zA) G = E g +
    (γ²/4)(u₀ + c Δ u₀'), where A is nilpotent: (I − zA)⁻¹ = Σ zᵏ Aᵏ. So a functional Δ² r·G is
    Σ zᵏ (r Aᵏ)·(Δ² E g) + Σ zᵏ⁺¹ (r Aᵏ 1 u₀ + r Aᵏ c Δ u₀'). The rows are the stages u, Δ u', and
    the errors of u and Δ u'. Entry [k, row, column] is the coefficient of zᵏ.
    """
    s = tableau.stages
    a = np.zeros((s, s))
    for i, row in enumerate(tableau.a):
        a[i, : len(row)] = [float(x) for x in row]
    c, b, db, b_hat, db_hat = (
        np.array([float(x) for x in row])
        for row in (tableau.c, tableau.b, tableau.db, tableau.b_hat, tableau.db_hat)
    )
    errors = [error_scale * (b - b_hat), error_scale * (db - db_hat)]
    rows = np.concatenate([a[1:], [db], errors])
    table = np.zeros((s + 1, s + 2, s + 2))
    table[0, : s - 1, 0] = 1.0  # u = u₀ + c Δ u₀' + …
    table[0, : s - 1, 1] = c[1:]
    table[0, s - 1, 1] = 1.0  # Δ u' = Δ u₀' + …
    for k in range(s):
        table[k, :, 2:] = rows
        table[k + 1, :, 0] = rows.sum(axis=1)
        table[k + 1, :, 1] = rows @ c
        rows = rows @ a
    highest = np.flatnonzero(table.any(axis=(1, 2)))[-1]
    return table[: highest + 1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _weights(tableau: NystromTableau, error_scale: float, gamma: Array, dt: Array) -> _Weights:
    """The weights of (h₀, m₀, g₁, …, g_s) in every row, with their derivatives."""
    dtype = dt.dtype
    table = jnp.asarray(_polynomials(tableau, error_scale), dtype)
    c = jnp.asarray([float(x) for x in tableau.c], dtype)
    last = tableau.stages - 2  # the row of the new position

    def weights(gamma, dt):
        eta = gamma / 2
        x = eta * dt
        one = jnp.ones((1,), dtype)
        z = jnp.broadcast_to(x * x, (table.shape[0] - 1,))
        rows = jnp.tensordot(jnp.cumprod(jnp.concatenate([one, z])), table, axes=1)
        growth = jnp.exp(x * c)
        # from (u₀, Δ u₀', Δ² E g) to (h₀, m₀, g): u₀ = h₀, u₀' = m₀ + (γ/2) h₀
        columns = jnp.concatenate([one, dt * one, dt * dt * growth])
        rows = rows.at[:, 0].add(x * rows[:, 1]) * columns[None, :]
        # from u to position = u / E, and from Δ u' to velocity = u' / E − (γ/2) position
        ends = jnp.broadcast_to(growth[-1], (3,))
        rows = rows / jnp.concatenate([growth[1:], ends])[:, None]
        rows = rows.at[last + 1].set(rows[last + 1] / dt - eta * rows[last])
        return rows.at[last + 3].set(rows[last + 3] / dt - eta * rows[last + 2])

    each = weights
    for _ in range(dt.ndim):  # a step size for each sample
        each = jax.vmap(each, (None, 0))
    value, by_gamma = jax.jvp(lambda g: each(g, dt), (gamma,), (jnp.ones_like(gamma),))
    _, by_dt = jax.jvp(lambda d: each(gamma, d), (dt,), (jnp.ones_like(dt),))
    return _Weights(gamma, dt, value, by_gamma, by_dt)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _row(i: int, weights: _Weights, terms: tuple[Array, ...]) -> Array:
    """Row i: the sum of weighted terms, the first ones of (h₀, m₀, g₁, …).

    Its derivative with respect to γ and Δ is the row of the derivatives of the weights: one
    reduction on the way back, instead of one for each weight.
    """
    return _sum(weights.value, i, terms)


def _sum(matrix: Array, i: int, terms: Sequence[Array | None]) -> Array:
    """Σ matrix[…, i, j]·terms[j] over the terms that are there, one matrix for all samples or one
    for each. Spelled out in `lax`, because it is
    traced hundreds of times."""
    pieces = []
    for j, x in enumerate(terms):
        if x is not None:
            batch, axes = matrix.shape[:-2], range(matrix.ndim - 2)
            entry = jax.lax.slice(matrix, (*(0 for _ in axes), i, j), (*batch, i + 1, j + 1))
            weight = jax.lax.reshape(entry, batch)
            pieces.append(jax.lax.mul(jax.lax.broadcast_in_dim(weight, x.shape, axes), x))
    return functools.reduce(jax.lax.add, pieces)


def _row_jvp(i, primals, tangents):
    (weights, terms), (d_weights, d_terms) = primals, tangents
    d_terms = [None if isinstance(dx, SymbolicZero) else dx for dx in d_terms]
    pieces = [] if all(dx is None for dx in d_terms) else [_sum(weights.value, i, d_terms)]
    for d, derivative in ((d_weights.gamma, weights.by_gamma), (d_weights.dt, weights.by_dt)):
        if not isinstance(d, SymbolicZero):
            slope = _sum(derivative, i, terms)
            pieces.append(along_samples(d, slope) * slope)
    out = _row(i, weights, terms)
    return out, functools.reduce(jnp.add, pieces) if pieces else jnp.zeros_like(out)


_row.defjvp(_row_jvp, symbolic_zeros=True)


@final
class NystromStepper(AbstractStepper):
    """A Nyström pair on position'' + γ position' = g(t, position), with a γ for each leaf."""

    system: AbstractNystromSystem
    solver: AbstractNystrom
    evaluations: int = eqx.field(static=True)
    error_order: int = eqx.field(static=True)
    adaptive: bool = eqx.field(static=True)
    lands: bool = eqx.field(static=True)

    def __init__(self, solver: AbstractNystrom, system: AbstractNystromSystem):
        self.system = system  # pyright: ignore[reportIncompatibleVariableOverride]
        self.solver = solver
        self.evaluations = solver.tableau.stages - 1
        self.error_order = solver.embedded_order + 1
        self.adaptive = True
        self.lands = solver.order > 6  # the error of quintic interpolation is of order 6

    def step(self, t, dt, y, f):
        tableau, system, f0 = self.solver.tableau, self.system, f
        position, velocity = y
        leaves, treedef = jax.tree.flatten(position)
        velocities = treedef.flatten_up_to(velocity)
        span = self._span(dt)
        weights = [
            _weights(tableau, self.solver.error_scale, jnp.asarray(gamma, dt.dtype), span)
            for gamma in treedef.flatten_up_to(system.damping())
        ]
        terms = [(x, v) for x, v in zip(leaves, velocities, strict=True)]

        def row(i: int) -> PyTree:
            return treedef.unflatten([_row(i, w, x) for w, x in zip(weights, terms, strict=True)])

        q = []
        for i in range(tableau.stages):
            if i > 0:
                c = tableau.c[i]
                position = row(i - 1)
                t_i = t + dt if c == 1 else t + float(c) * dt
                f = system.evaluate(t_i, (position, velocity))
            else:
                t_i = t
            q.append(system.integrand(t_i, (position, velocity), f))
            g = treedef.flatten_up_to(system.acceleration(position, f))
            terms = [(*x, gi) for x, gi in zip(terms, g, strict=True)]

        n = tableau.stages - 1
        y1 = (position, row(n))
        error = (row(n + 1), row(n + 2))
        db_error = [p - r for p, r in zip(tableau.db, tableau.db_hat, strict=True)]
        q_error = scaled(dt * self.solver.error_scale, combine(db_error, q))
        damping = treedef.unflatten([w.gamma for w in weights])
        forces = system.acceleration(y[0], f0), system.acceleration(position, f)
        dense = (y, y1, forces, damping)
        return Step(y1, f, error, scaled(dt, combine(tableau.db, q)), q_error, dense)

    def _span(self, dt):
        """How far the step takes the samples, on their own clocks."""
        pace = self.system.pace()
        return dt if pace is None else dt * pace.astype(dt.dtype)

    def interpolate(self, dense, dt, theta):
        """The quintic through u, u' and u'' at both ends. It is exact where the steps are, however
        long these get, which one through h, h' and h'' would not be."""
        w, dw = quintic_hermite(theta)
        span = self._span(dt)

        def leaf(x0, x1, v0, v1, g0, g1, gamma):
            dt, eta = along_samples(span, x0), gamma / 2
            ends = []
            for x, v, g, s in ((x0, v0, g0, jnp.zeros_like(dt)), (x1, v1, g1, dt)):
                growth = jnp.exp(eta * s)
                ends.append((growth * x, growth * (v + eta * x), growth * (g + eta * eta * x)))
            (u0, du0, ddu0), (u1, du1, ddu1) = ends
            data = (u0, u1, dt * du0, dt * du1, dt * dt * ddu0, dt * dt * ddu1)
            u = sum(c * x for c, x in zip(w, data, strict=True))
            du = sum(c * x for c, x in zip(dw, data, strict=True)) / dt
            shrink = jnp.exp(-eta * theta * dt)
            position = shrink * u
            return position, shrink * du - eta * position

        (x0, v0), (x1, v1), (g0, g1), gamma = dense
        leaves = jax.tree.map(leaf, x0, x1, v0, v1, g0, g1, gamma)
        return jax.tree.transpose(jax.tree.structure(x0), jax.tree.structure((0, 0)), leaves)


def quintic_hermite(s: Array) -> tuple[list[Array], list[Array]]:
    """The weights of (x0, x1, Δx0', Δx1', Δ²x0'', Δ²x1'') in the quintic Hermite polynomial at
    s ∈ [0, 1], and in its derivative."""
    polynomials = [np.polynomial.Polynomial(p) for p in _QUINTIC]
    value = [jnp.polyval(jnp.asarray(p.coef[::-1], s.dtype), s) for p in polynomials]
    slope = [jnp.polyval(jnp.asarray(p.deriv().coef[::-1], s.dtype), s) for p in polynomials]
    return value, slope


_QUINTIC = (
    (1, 0, 0, -10, 15, -6),
    (0, 0, 0, 10, -15, 6),
    (0, 1, 0, -6, 8, -3),
    (0, 0, 0, -4, 7, -3),
    (0, 0, 0.5, -1.5, 1.5, -0.5),
    (0, 0, 0, 0.5, -1, 0.5),
)

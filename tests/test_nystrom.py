"""The Nyström pairs: their coefficients, their orders, and what they must refuse."""

from fractions import Fraction
from functools import cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hbnode

PAIRS = {
    "Nystrom4": (hbnode.Nystrom4(), 4, 3),
    "Nystrom5": (hbnode.Nystrom5(), 5, 4),
    "Nystrom6": (hbnode.Nystrom6(), 6, 4),
    "Nystrom8": (hbnode.Nystrom8(), 8, 6),
}
pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())


# The order conditions, from scratch. Expanding y'' = g(t, y) along the solution gives one
# elementary differential for each tree (k, children): a node g with k derivatives in the direction
# (1, y') and one subtree for each derivative in a direction y − y0 − s y'. Over the exact solution
# the node grows like s^degree with a rational factor; over the stages it is a polynomial in c, A.


@cache
def trees(degree):
    """All trees whose node grows like s^degree."""

    def forests(total, largest):
        if total == 0:
            yield ()
        for d in range(min(largest, total - 2), -1, -1):
            for tree in trees(d):
                for rest in forests(total - d - 2, d):
                    yield tuple(sorted((tree, *rest), key=repr))

    return tuple(
        sorted(
            {(k, f) for k in range(degree + 1) for f in forests(degree - k, degree - k)}, key=repr
        )
    )


def degree(tree):
    k, children = tree
    return k + sum(degree(child) + 2 for child in children)


def exact_factor(tree):
    _, children = tree
    factor = Fraction(1)
    for child in children:  # twice integrated
        d = degree(child)
        factor *= exact_factor(child) / ((d + 1) * (d + 2))
    return factor


def stage_values(tableau, tree):
    k, children = tree
    values = [c**k for c in tableau.c]
    for child in children:
        below = stage_values(tableau, child)
        sums = [
            sum((a * b for a, b in zip(row, below, strict=False)), Fraction(0)) for row in tableau.a
        ]
        values = [v * s for v, s in zip(values, sums, strict=True)]
    return values


def order_of(tableau, weights, integrations):
    """The order up to which Σ weightsᵢ Gᵢ integrates once (velocity) or twice (position)."""
    for d in range(10):
        for tree in trees(d):
            got = sum(
                (w * v for w, v in zip(weights, stage_values(tableau, tree), strict=True)),
                Fraction(0),
            )
            divisor = (d + 1) if integrations == 1 else (d + 1) * (d + 2)
            if got != exact_factor(tree) / divisor:
                return d + integrations - 1
    raise AssertionError("more orders than were checked")


def test_number_of_trees():
    # special Nyström trees; checks the test's own combinatorics
    assert [len(trees(d)) for d in range(6)] == [1, 1, 2, 3, 6, 10]


@pairs
def test_order_conditions(pair):
    solver, order, embedded = pair
    t = solver.tableau
    assert order_of(t, t.db, 1) == order == solver.order
    assert order_of(t, t.b, 2) >= order
    assert order_of(t, t.db_hat, 1) == embedded == solver.embedded_order
    assert order_of(t, t.b_hat, 2) >= embedded


@pairs
def test_first_same_as_last(pair):
    t = pair[0].tableau
    assert t.c[0] == 0 and t.c[-1] == 1
    assert t.a[-1] == t.b[:-1] and t.b[-1] == 0
    assert all(len(row) == i for i, row in enumerate(t.a))
    assert all(isinstance(x, Fraction) for row in (t.c, t.b, t.db, *t.a) for x in row)


def forced(t, h, args):
    """A smooth non-linear field that depends on time."""
    return -4.0 * jnp.sin(h) + jnp.cos(3.0 * t)


@pytest.mark.parametrize("gamma", [0.0, 5.0])
@pairs
def test_observed_order(pair, gamma):
    """Steps of one size, against a solve at 1e-14 by a Runge–Kutta method."""
    from hbnode.solve.nystrom.stepper import NystromStepper
    from hbnode.solve.systems import ForwardSystem

    solver, order, _ = pair
    dynamics = hbnode.HBNODE(forced, gamma=gamma)
    y0 = (jnp.array([1.0, -0.5]), jnp.array([0.3, 0.8]))
    stepper = NystromStepper(solver, ForwardSystem(dynamics, None))

    @jax.jit
    def march(steps):
        dt = 1.0 / steps

        def body(i, carry):
            step = stepper.step(i * dt, dt, *carry)
            return step.y, step.f

        return jax.lax.fori_loop(0, steps, body, (y0, forced(0.0, y0[0], None)))[0]

    exact = hbnode.solve(
        dynamics, y0, [0.0, 1.0], solver=diffrax.Dopri8(), rtol=1e-14, atol=1e-14
    ).ys
    counts = {4: (24, 96), 5: (32, 64), 6: (6, 16), 8: (4, 8)}[order]
    errors = []
    for n in counts:
        error = [np.abs(a - b[-1]).max() for a, b in zip(march(n), exact, strict=True)]
        errors.append(max(error))
    observed = np.log(errors[0] / errors[1]) / np.log(counts[1] / counts[0])
    assert abs(observed - order) < 0.2, (observed, errors)


@pytest.mark.parametrize("gamma", [0.0, 0.05, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("backwards", [False, True])
@pairs
def test_any_damping_and_direction(pair, gamma, backwards):
    """The damped oscillator in closed form."""
    from problems import DampedOscillator

    problem = DampedOscillator(omega=2.0, gamma=gamma)
    span = 1.0 if gamma <= 10 else 0.3
    ts = np.array([0.0, 0.4 * span, span])
    y0 = problem.y0
    if backwards:  # towards t = 0, where the damping makes the solution grow
        y0 = tuple(y[-1] for y in problem.exact(ts))
        ts = ts[::-1].copy()
    solve = jax.jit(
        lambda y0: hbnode.solve(
            problem.dynamics(), y0, ts, solver=pair[0], rtol=1e-9, atol=1e-9, max_steps=20000
        )
    )
    scale = max(1.0, float(np.exp(gamma * span))) if backwards else 1.0
    for got, want in zip(solve(y0).ys, problem.exact(ts), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-7 * scale, rtol=0)


@pairs
def test_free_motion_is_exact(pair):
    """With γ = 0 and a field that is a polynomial in t nothing is left to approximate."""
    dynamics = hbnode.HBNODE(lambda t, h, args: jnp.full_like(h, 2.0) + 6.0 * t, gamma=0.0)
    y0 = (jnp.array([1.0]), jnp.array([-2.0]))
    h, m = hbnode.solve(dynamics, y0, [0.0, 0.3, 2.0], solver=pair[0]).ys
    t = np.array([0.0, 0.3, 2.0])
    np.testing.assert_allclose(h[:, 0], 1 - 2 * t + t**2 + t**3, rtol=1e-12)
    np.testing.assert_allclose(m[:, 0], -2 + 2 * t + 3 * t**2, rtol=1e-12, atol=1e-12)


def test_dense_output_is_as_accurate_as_the_steps():
    from problems import DampedOscillator

    problem = DampedOscillator(omega=3.0, gamma=0.4)
    ts = np.linspace(0.0, 2.0, 57)
    for solver, _, _ in PAIRS.values():
        sol = hbnode.solve(problem.dynamics(), problem.y0, ts, solver=solver, rtol=1e-7, atol=1e-7)
        for got, want in zip(sol.ys, problem.exact(ts), strict=True):
            error = np.abs(got - want).max(axis=1)
            assert error.max() < 10 * error[-1] + 1e-6, type(solver)


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pairs
def test_calibrated_to_dopri5(pair, tol):
    """At one tolerance the error reached is that of Dopri5 or smaller, not orders smaller."""
    rng = np.random.default_rng(0)
    w1, w2 = (jnp.asarray(rng.normal(size=(6, 6))) for _ in range(2))
    dynamics = hbnode.HBNODE(lambda t, h, args: 3.0 * jnp.tanh(h @ w1) @ w2, gamma=0.3)
    y0 = tuple(jnp.asarray(rng.normal(size=(20, 6))) for _ in range(2))

    def error(solver):
        run = jax.jit(
            lambda tol: hbnode.solve(dynamics, y0, [0.0, 2.0], solver=solver, rtol=tol, atol=tol).ys
        )
        exact = _exact_tanh(dynamics, y0)
        return np.sqrt(np.mean([(a[-1] - b) ** 2 for a, b in zip(run(tol), exact, strict=True)]))

    ratio = error(pair[0]) / error(diffrax.Dopri5())
    assert 0.01 < ratio < 4, ratio


def _exact_tanh(dynamics, y0):
    sol = hbnode.solve(dynamics, y0, [0.0, 2.0], solver=diffrax.Dopri8(), rtol=1e-12, atol=1e-12)
    return [y[-1] for y in sol.ys]


@pairs
def test_refused_where_the_order_would_be_lost(pair):
    h = jnp.ones(2)
    refused = {
        "velocity": hbnode.SONODE(lambda t, y, args: -y[0]),
        "gate": hbnode.GHBNODE(lambda t, h, args: -h),
    }
    for word, dynamics in refused.items():
        with pytest.raises(ValueError, match=word) as error:
            hbnode.solve(dynamics, (h, h), [0.0, 1.0], solver=pair[0])
        assert "Dopri5" in str(error.value)
    with pytest.raises(ValueError, match="first order"):
        hbnode.solve(hbnode.NODE(lambda t, h, args: -h), h, [0.0, 1.0], solver=pair[0])


@pytest.mark.parametrize("gate", [lambda m: m, jax.nn.identity, jax.jit(lambda m: m)])
def test_identity_gate_is_recognised(gate):
    from problems import LINEAR

    problem = LINEAR["GHBNODE"]
    dynamics = hbnode.GHBNODE(
        problem.dynamics().field, problem.theta["gamma"], problem.theta["xi"], gate
    )
    sol = hbnode.solve(
        dynamics, problem.y0, [0.0, 1.5], solver=hbnode.Nystrom6(), rtol=1e-10, atol=1e-10
    )
    for got, want in zip(sol.ys, problem.exact([1.5]), strict=True):
        np.testing.assert_allclose(got[-1:], want, rtol=1e-7)


def test_a_scaled_identity_is_not():
    dynamics = hbnode.GHBNODE(lambda t, h, args: -h, gate=lambda m: 1.0 * m + 0.0)
    with pytest.raises(ValueError, match="gate"):
        hbnode.solve(dynamics, (jnp.ones(2), jnp.ones(2)), [0.0, 1.0], solver=hbnode.Nystrom4())

"""The propositions, against closed forms, a reference integrator and linear algebra of numpy."""

from __future__ import annotations

import functools
import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg as sl
import scipy.optimize as so
from numpy.polynomial import chebyshev

import hbnode
import problems
from hbnode import theory

TIGHT = {"rtol": 1e-11, "atol": 1e-11}
THETA, ARGS = problems.parameters(), problems.arguments()
WEIGHTS = np.random.default_rng(7).normal(size=(5, 6))


def spring(t, h, args):
    return -h


def flat(y, axis=-1):
    return np.concatenate([np.asarray(x) for x in jax.tree.leaves(y)], axis=axis)


def weighted_sines(ys):
    """A loss that reads every entry of every state: Σ W sin(y)."""
    z = jnp.concatenate(jax.tree.leaves(ys), axis=-1)
    return jnp.sum(jnp.asarray(WEIGHTS)[: z.shape[0], : z.shape[1]] * jnp.sin(z))


def of_last(y):
    z = jnp.concatenate(jax.tree.leaves(y))
    return jnp.sum(jnp.asarray(WEIGHTS)[0, : z.size] * jnp.sin(z))


def height(ys):
    """A loss that reads the first entry of the last position."""
    return jax.tree.leaves(ys)[0][-1, 0]


def same_numbers(actual, expected, atol):
    """Whether two collections of complex numbers are equal in some order."""
    actual, expected = np.ravel(actual), np.ravel(expected)
    assert actual.shape == expected.shape
    distance = np.abs(actual[:, None] - expected)
    assert distance[so.linear_sum_assignment(distance)].max() < atol


class TestAdjointStates:
    def test_a_loss_of_all_times_by_matrix_exponential(self):
        system = problems.LINEAR["SONODE"]
        ts = np.array([0.0, 0.3, 0.5, 1.1, 1.4])
        ys = flat(system.exact(ts))
        direct = WEIGHTS[:, : ys.shape[1]] * np.cos(ys)
        expected = [
            sum(direct[j] @ system.propagator(ts[j] - ts[k]) for j in range(k, len(ts)))
            for k in range(len(ts))
        ]
        adjoints = theory.adjoint_states(system.dynamics(), weighted_sines, system.y0, ts, **TIGHT)
        assert jax.tree.structure(adjoints) == jax.tree.structure(system.y0)
        np.testing.assert_allclose(flat(adjoints), expected, atol=1e-9)

    @pytest.mark.parametrize("name", problems.OSCILLATORS)
    def test_damped_oscillator_in_closed_form(self, name):
        system = problems.OSCILLATORS[name]
        ts = np.linspace(0.0, 3.0, 7)
        a, b = theory.adjoint_states(system.dynamics(), height, system.y0, ts, **TIGHT)
        expected = [system.propagator(ts[-1] - t)[0] for t in ts]  # ∂h(T)/∂(h, m)(t)
        np.testing.assert_allclose(np.concatenate([a, b], axis=1), expected, atol=1e-9)

    def test_under_jit_backwards_in_time_with_another_solver(self):
        system = problems.LINEAR["HBNODE"]
        dynamics, ts = system.dynamics(), jnp.array([1.2, 0.5, 0.0])

        @jax.jit
        def run(y0, ts):
            return theory.adjoint_states(
                dynamics, height, y0, ts, solver=hbnode.Nystrom5(), **TIGHT
            )

        expected = [system.propagator(float(ts[-1] - t))[0] for t in ts]
        np.testing.assert_allclose(flat(run(system.y0, ts)), expected, atol=1e-8)

    def test_solver_and_gradient_are_those_asked_for(self):
        """Each changes the result: one step of Euler's method is known exactly, and a continuous
        adjoint of low tolerance is inexact by itself, however good the forward solve."""
        system = problems.OSCILLATORS["underdamped"]
        exact = system.propagator(1.0)[0]

        def error(expected, **options):
            adjoints = theory.adjoint_states(
                system.dynamics(), height, system.y0, [0.0, 1.0], **options
            )
            return np.abs(flat(adjoints)[0] - expected).max()

        one_step = [1.0, 1.0]  # h + dt m
        assert error(one_step, solver=diffrax.Euler(), dt0=1.0) < 1e-14
        coarse = hbnode.ContinuousAdjoint(solver=diffrax.Bosh3(), rtol=0.1, atol=0.1)
        assert 1e-4 < error(exact, gradient=coarse, **TIGHT) < 0.5

    def test_one_time_leaves_the_gradient_of_the_loss(self):
        h = jnp.arange(6.0).reshape(2, 3)
        adjoint = theory.adjoint_states(hbnode.NODE(spring), lambda ys: jnp.sum(ys**3), h, [0.0])
        np.testing.assert_allclose(adjoint, 3 * np.asarray(h)[None] ** 2)


class TestAdjointNorms:
    def test_pair_of_an_oscillator(self):
        system = problems.OSCILLATORS["undamped"]
        ts = np.linspace(0.0, 3.0, 7)
        norms = theory.adjoint_norms(system.dynamics(), height, system.y0, ts, **TIGHT)
        phase, omega = system.omega * (3.0 - ts), system.omega
        expected = np.sqrt(np.cos(phase) ** 2 + (np.sin(phase) / omega) ** 2)
        np.testing.assert_allclose(norms, expected, atol=1e-9)

    def test_all_entries_of_a_batch_in_single_precision(self):
        h = jnp.ones((4, 3), jnp.float32)
        norms = theory.adjoint_norms(
            hbnode.NODE(spring), lambda ys: jnp.sum(ys[-1]), h, [0.0, 2.0], solver=diffrax.Tsit5()
        )
        assert norms.dtype == jnp.float32
        np.testing.assert_allclose(norms, np.sqrt(12) * np.exp([-2.0, 0.0]), atol=1e-4)


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.jacfwd, argnums=1, has_aux=True)
def reference_step(name, z, start, end):
    """The Jacobian of the end in the start, and the end, of ten Runge–Kutta steps."""
    pair = z.size > 3
    y = (z[:3], z[3:]) if pair else z
    y = problems.reference_flow(name, THETA, y, start, end, ARGS, steps=10)
    z = jnp.concatenate(y) if pair else y
    return z, z


def reference_trajectory(name, y0, ts):
    """The states at `ts` and, of every interval, the Jacobian of its end in its start."""
    zs, jacobians = [flat(y0)], []
    for start, end in itertools.pairwise(ts):
        jacobian, z = reference_step(name, zs[-1], start, end)
        zs.append(np.asarray(z))
        jacobians.append(np.asarray(jacobian))
    return np.array(zs), jacobians


def polynomial_samples(second_order, n=3, seed=5):
    """Cubic states and adjoint states: values and derivatives as functions of t."""
    coefficients = np.random.default_rng(seed).normal(size=(2, 4, 2 * n if second_order else n))

    def make(c):
        def value(t):
            z = sum(c[k] * t**k for k in range(4))
            return (z[:n], z[n:]) if second_order else z

        return value

    return tuple(make(jnp.asarray(c)) for c in coefficients)


def at_each(function, ts):
    return jax.jit(jax.vmap(function))(ts)


class TestResiduals:
    """Props. 1, 2 and 3, and their counterparts for the other families."""

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("ANODE", {}),
            ("SONODE", {}),
            ("HBNODE", {}),
            ("GHBNODE", {}),
            ("GHBNODE-identity", {"solver": hbnode.Nystrom5()}),
        ],
    )
    def test_adjoint_states_and_their_equations(self, name, options):
        """The adjoint states are right (they are the last one times the Jacobians of the reference
        integrator), and the residuals vanish."""
        dynamics, y0 = problems.FAMILIES[name](THETA), problems.initial_state(name)
        result = theory.adjoint_residuals(dynamics, of_last, y0, 0.2, 1.2, args=ARGS, **options)
        ts = np.asarray(result.ts)
        assert ts[0] == 0.2
        assert abs(ts[-1] - 1.2) < 1e-15

        zs, jacobians = reference_trajectory(name, y0, ts)
        expected = [WEIGHTS[0, : zs.shape[1]] * np.cos(zs[-1])]
        for jacobian in reversed(jacobians):
            expected.append(expected[-1] @ jacobian)
        np.testing.assert_allclose(flat(result.adjoints), expected[::-1], atol=1e-8)

        assert jax.tree.structure(result.residuals) == jax.tree.structure(y0)
        assert result.relative < 2e-9
        assert np.abs(flat(result.residuals)).max() < 1e-8

    @pytest.mark.parametrize(
        ("name", "options"),
        [("HBNODE", {}), ("GHBNODE-identity", {"solver": hbnode.Nystrom5()})],
    )
    def test_heavy_ball_equation(self, name, options):
        dynamics, y0 = problems.FAMILIES[name](THETA), problems.initial_state(name)
        result = theory.heavy_ball_residuals(dynamics, of_last, y0, 0.2, 1.2, args=ARGS, **options)
        assert result.residuals.shape == (24, 3)
        assert result.relative < 1e-8

    @pytest.mark.parametrize("name", problems.FAMILIES)
    def test_residual_of_arbitrary_functions(self, name):
        """Of samples that satisfy nothing, the residual is p' + p ∂(y')/∂y by autodiff of the
        right-hand side written out in `problems`, at every node."""
        y0 = problems.initial_state(name)
        state, adjoint = polynomial_samples(isinstance(y0, tuple))
        ts = jnp.asarray(0.2 + (1 - np.cos(np.pi * np.arange(12) / 11)) / 2)
        ys, adjoints = at_each(lambda t: (state(t), adjoint(t)), ts)
        dynamics = problems.FAMILIES[name](THETA)
        result = theory._residuals(dynamics, ts, ys, adjoints, ARGS, second_order=False)

        def expected(t):
            _, slope = jax.jvp(adjoint, (t,), (jnp.ones_like(t),))
            _, pull = jax.vjp(lambda y: problems.rate(name, THETA, t, y, ARGS), state(t))
            return jax.tree.map(jnp.add, slope, pull(adjoint(t))[0])

        values = flat(at_each(expected, ts))
        np.testing.assert_allclose(flat(result.residuals), values, atol=1e-10)
        slopes = flat(at_each(jax.jacfwd(adjoint), ts))
        scale = max(np.abs(slopes).max(), np.abs(values - slopes).max())
        np.testing.assert_allclose(result.relative, np.abs(values).max() / scale, rtol=1e-10)

    @pytest.mark.parametrize("name", ["HBNODE", "GHBNODE-identity"])
    def test_heavy_ball_residual_of_samples(self, name):
        """Of samples whose a is chosen as γb − b' and whose b is arbitrary, the residual is
        b'' − γb' − b (∂f/∂h − ξI) with every term written out."""
        state, adjoint = polynomial_samples(True)
        gamma, xi = 1 / (1 + np.exp(0.8)), np.log1p(np.exp(0.3)) * (name != "HBNODE")
        ts = jnp.asarray(0.2 + (1 - np.cos(np.pi * np.arange(12) / 11)) / 2)
        slope = jax.jacfwd(lambda t: adjoint(t)[1])
        ys, b, b_slope = at_each(lambda t: (state(t), adjoint(t)[1], slope(t)), ts)
        result = theory._residuals(
            problems.FAMILIES[name](THETA).resolve(), ts, ys, (gamma * b - b_slope, b), ARGS, True
        )

        def expected(t):
            h, b = state(t)[0], adjoint(t)[1]
            jacobian = jax.jacfwd(lambda h: problems.mlp(THETA, t, h, ARGS))(h)
            return jax.jacfwd(slope)(t) - gamma * slope(t) - b @ jacobian + xi * b

        np.testing.assert_allclose(result.residuals, at_each(expected, ts), atol=1e-9)

    def test_proposition_1_is_about_b_and_not_a(self):
        """a = ∂L/∂h misses the equation that the paper prints for it by −b d(∂f/∂h)/dt, which is
        not small; b = ∂L/∂m satisfies it. Derivatives by numpy's Chebyshev series."""
        name, n = "HBNODE", 24
        dynamics, y0 = problems.FAMILIES[name](THETA), problems.initial_state(name)
        result = theory.adjoint_residuals(dynamics, of_last, y0, 0.2, 1.2, args=ARGS)
        ts, (a, b) = np.asarray(result.ts), map(np.asarray, result.adjoints)
        zs, _ = reference_trajectory(name, y0, ts)
        field_jacobian = jax.jit(jax.jacfwd(lambda h, t: problems.mlp(THETA, t, h, ARGS)))
        jacobians = np.stack([field_jacobian(z[:3], t) for z, t in zip(zs, ts, strict=True)])

        def derivative(values, order):
            series = chebyshev.chebfit((ts - 0.7) / 0.5, values.reshape(n, -1), n - 1)
            slopes = chebyshev.chebval((ts - 0.7) / 0.5, chebyshev.chebder(series, order))
            return slopes.T.reshape(values.shape) / 0.5**order

        def printed(p):
            gamma = 1 / (1 + np.exp(0.8))
            pulled = np.einsum("ki,kij->kj", p, jacobians)
            return derivative(p, 2) - gamma * derivative(p, 1) - pulled

        assert np.abs(printed(b)).max() < 1e-6
        assert np.abs(printed(a)).max() > 0.01
        defect = -np.einsum("ki,kij->kj", b, derivative(jacobians, 1))
        np.testing.assert_allclose(printed(a), defect, atol=1e-6)


def full_matrix(name, y0, t, T, steps=40):
    """M of eq. 18 by Simpson's rule over the reference trajectory, block by block."""
    gamma = 1 / (1 + np.exp(-float(THETA["omega"])))
    xi = 0.0 if name == "HBNODE" else np.log1p(np.exp(float(THETA["chi"])))
    ts = np.linspace(t, T, 2 * steps + 1)
    zs, _ = reference_trajectory(name, y0, ts)
    jacobian = jax.jit(jax.jacfwd(lambda h, t: problems.mlp(THETA, t, h, ARGS)))
    blocks = []
    for s, z in zip(ts, zs, strict=True):
        slope = 1 - np.tanh(z[3:]) ** 2 if name == "GHBNODE" else np.ones(3)
        lower = np.asarray(jacobian(z[:3], s)) - xi * np.eye(3)
        blocks.append(np.block([[np.zeros((3, 3)), np.diag(slope)], [lower, -gamma * np.eye(3)]]))
    weights = np.ones(2 * steps + 1)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return np.tensordot(weights * (t - T) / (6 * steps), blocks, 1)


class TestSpectrum:
    """Prop. 4 and the bound after it."""

    @pytest.mark.parametrize("name", ["HBNODE", "GHBNODE"])
    def test_pairs_are_the_eigenvalues_of_the_full_matrix(self, name):
        dynamics, y0, t, T = problems.FAMILIES[name](THETA), problems.initial_state(name), 0.3, 2.1
        M = full_matrix(name, y0, t, T)
        actual = theory.integrated_jacobian(dynamics, y0, t, T, args=ARGS)
        np.testing.assert_allclose(actual, M, atol=1e-7)
        pairs = np.asarray(theory.paired_spectrum(dynamics, y0, t, T, args=ARGS))
        assert pairs.shape == (3, 2)
        same_numbers(pairs, np.linalg.eigvals(-M), 1e-6)
        gamma = 1 / (1 + np.exp(0.8))
        np.testing.assert_allclose(pairs.sum(axis=1), (t - T) * gamma, atol=1e-14)
        bound = float(theory.slow_eigenvalue_bound(dynamics, t, T))
        np.testing.assert_allclose(bound, (t - T) * gamma / 2, rtol=1e-14)
        slow, fast = np.real(pairs).T
        assert (slow >= bound - 1e-12).all()
        assert (slow >= fast).all()

    @pytest.mark.parametrize("name", problems.OSCILLATORS)
    def test_damped_oscillator_in_closed_form(self, name):
        system, t, T = problems.OSCILLATORS[name], 0.5, 1.7
        root = np.sqrt(complex(system.gamma**2 / 4 - system.omega**2))
        expected = (T - t) * (-system.gamma / 2 + np.array([[root, -root]]))
        pairs = theory.paired_spectrum(system.dynamics(), system.y0, t, T)
        same_numbers(pairs, expected, 1e-7)  # the critical pair is a double root
        bound = theory.slow_eigenvalue_bound(system.dynamics(), t, T)
        if name != "overdamped":
            np.testing.assert_allclose(np.real(pairs), float(bound), atol=1e-7)
        else:
            assert np.real(pairs)[0, 1] < float(bound) - 0.1 < float(bound) + 0.1
            assert np.real(pairs)[0, 0] > float(bound) + 0.1

    def test_exponential_of_minus_m_propagates_a_constant_linear_system(self):
        system, t, T = problems.LINEAR["GHBNODE"], -0.4, 0.9
        pairs = theory.paired_spectrum(system.dynamics(), system.y0, t, T, nodes=3)
        same_numbers(np.exp(pairs), np.linalg.eigvals(system.propagator(T - t)), 1e-9)
        M = theory.integrated_jacobian(system.dynamics(), system.y0, t, T, nodes=3)
        np.testing.assert_allclose(sl.expm(-np.asarray(M)), system.propagator(T - t), atol=1e-10)

    def test_only_the_determinant_survives_where_jacobians_do_not_commute(self):
        """Eq. 18 takes exp(−M) for ∂(h, m)_T/∂(h, m)_t. Of a non-linear field it is not, but its
        determinant is: the exponential of the sum of all pairs."""
        name, t, T = "GHBNODE", 0.3, 2.1
        dynamics, y0 = problems.FAMILIES[name](THETA), problems.initial_state(name)

        _, jacobians = reference_trajectory(name, y0, np.linspace(t, T, 41))
        propagator = np.linalg.multi_dot(jacobians[::-1])
        pairs = theory.paired_spectrum(dynamics, y0, t, T, args=ARGS)
        np.testing.assert_allclose(np.exp(np.sum(pairs)), np.linalg.det(propagator), rtol=1e-7)
        M = np.asarray(theory.integrated_jacobian(dynamics, y0, t, T, args=ARGS))
        assert np.abs(sl.expm(-M) - propagator).max() > 0.01

    def test_a_first_order_system_has_its_integrated_jacobian_too(self):
        """Eq. 17, where it is exact: h' = cos(t) A h."""
        A = problems.LINEAR["NODE"].theta["A"]
        dynamics = hbnode.NODE(lambda t, h, args: jnp.cos(t) * (A @ h))
        M = theory.integrated_jacobian(dynamics, jnp.ones(3), 0.2, 1.5)
        np.testing.assert_allclose(M, (np.sin(0.2) - np.sin(1.5)) * A, atol=1e-12)

    def test_state_of_any_shape_is_ravelled(self):
        rng = np.random.default_rng(3)
        A = jnp.asarray(rng.normal(size=(6, 6)))
        h = jnp.asarray(rng.normal(size=(2, 3)))
        dynamics = hbnode.HBNODE(lambda t, h, args: (A @ h.ravel()).reshape(2, 3), gamma=0.2)
        pairs = theory.paired_spectrum(dynamics, (h, h), 0.0, 0.5, nodes=2)
        G = np.block([[np.zeros((6, 6)), np.eye(6)], [np.asarray(A), -0.2 * np.eye(6)]])
        same_numbers(pairs, 0.5 * np.linalg.eigvals(G), 1e-9)


H = jnp.ones(2)
OF_LAST = {"loss": lambda y: jnp.sum(jax.tree.leaves(y)[0])}
BALL = hbnode.HBNODE(spring, gamma=0.5)


class TestErrors:
    @pytest.mark.parametrize(
        ("dynamics", "y0"),
        [
            (hbnode.NODE(spring), H),
            (hbnode.ANODE(spring, augment=1), H),
            (hbnode.SONODE(lambda t, y, args: -y[0]), (H, H)),
        ],
        ids=["NODE", "ANODE", "SONODE"],
    )
    def test_families_without_damping(self, dynamics, y0):
        family = type(dynamics).__name__
        with pytest.raises(TypeError, match=f"Prop. 1 needs an HBNODE or GHBNODE, got a {family}"):
            theory.heavy_ball_residuals(dynamics, y0=y0, t0=0.0, t1=1.0, **OF_LAST)
        with pytest.raises(TypeError, match=f"Prop. 4 needs an HBNODE or GHBNODE, got a {family}"):
            theory.paired_spectrum(dynamics, y0, 0.0, 1.0)
        with pytest.raises(TypeError, match=f"Prop. 4 .* got a {family}"):
            theory.slow_eigenvalue_bound(dynamics, 0.0, 1.0)

    def test_gate(self):
        dynamics = hbnode.GHBNODE(spring, gamma=0.5, xi=0.1)
        with pytest.raises(ValueError, match="whose gate is not the identity"):
            theory.heavy_ball_residuals(dynamics, y0=(H, H), t0=0.0, t1=1.0, **OF_LAST)

    def test_times(self):
        with pytest.raises(ValueError, match="strictly increasing or strictly decreasing"):
            theory.adjoint_states(BALL, weighted_sines, (H, H), [0.0, 1.0, 0.5])
        with pytest.raises(ValueError, match=r"strictly increasing .* \[1. 1.\]"):
            theory.adjoint_residuals(BALL, y0=(H, H), t0=1.0, t1=1.0, **OF_LAST)
        with pytest.raises(ValueError, match=r"strictly increasing .* \[1. 1.\]"):
            theory.paired_spectrum(BALL, (H, H), 1.0, 1.0)

    def test_state(self):
        with pytest.raises(TypeError, match="the pair"):
            theory.adjoint_norms(BALL, weighted_sines, H, [0.0, 1.0])

    @pytest.mark.parametrize("nodes", [2, True])
    def test_nodes(self, nodes):
        with pytest.raises(ValueError, match=f"3 or more, got {nodes}"):
            theory.adjoint_residuals(BALL, y0=(H, H), t0=0.0, t1=1.0, nodes=nodes, **OF_LAST)

    def test_no_quadrature_nodes(self):
        with pytest.raises(ValueError, match="1 or more, got 0"):
            theory.integrated_jacobian(BALL, (H, H), 0.0, 1.0, nodes=0)

    def test_options_reach_the_solve(self):
        nystrom = {"solver": hbnode.Nystrom5()}
        gated = hbnode.GHBNODE(spring, gamma=0.5, xi=0.1)
        with pytest.raises(ValueError, match="no Nyström form"):
            theory.adjoint_states(hbnode.NODE(spring), weighted_sines, H, [0.0, 1.0], **nystrom)
        with pytest.raises(ValueError, match=r"no\s+Nyström form"):
            theory.adjoint_residuals(gated, y0=(H, H), t0=0.0, t1=1.0, **OF_LAST, **nystrom)
        with pytest.raises(ValueError, match=r"no\s+Nyström form"):
            theory.paired_spectrum(gated, (H, H), 0.0, 1.0, **nystrom)
        with pytest.raises(ValueError, match="`max_steps` must be"):
            theory.heavy_ball_residuals(BALL, y0=(H, H), t0=0.0, t1=1.0, max_steps=0, **OF_LAST)

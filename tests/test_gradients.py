"""Gradients against central differences of tight solves, for every way to get them."""

import itertools
from functools import cache

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import hbnode
from problems import FAMILIES, LINEAR, arguments, initial_state, parameters, reference_flow

GRADIENTS = {
    "discrete": hbnode.DiscreteAdjoint(),
    "checkpointed": hbnode.Checkpointed(4),
    "continuous-state": hbnode.ContinuousAdjoint("state"),
    "continuous-full": hbnode.ContinuousAdjoint("full"),
}
RUNGE_KUTTA = {"Dopri5": diffrax.Dopri5(), "Tsit5": diffrax.Tsit5()}
NYSTROM = {
    "Nystrom4": hbnode.Nystrom4(),
    "Nystrom5": hbnode.Nystrom5(),
    "Nystrom6": hbnode.Nystrom6(),
    "Nystrom8": hbnode.Nystrom8(),
}
CASES = [
    (family, solver, gradient)
    for family in FAMILIES
    for solver in {**RUNGE_KUTTA, **(NYSTROM if family in ("HBNODE", "GHBNODE-identity") else {})}
    for gradient in GRADIENTS
]


def inputs(family):
    return {
        "theta": parameters(),
        "args": arguments(),
        "y0": initial_state(family),
        "ts": jnp.array([0.1, 0.6, 1.0]),
    }


def weigh(ys):
    """A loss that reads every entry at every time."""
    return sum(
        jnp.sum(jnp.cos(jnp.arange(y.size, dtype=y.dtype) + i).reshape(y.shape) * y**2)
        for i, y in enumerate(jax.tree.leaves(ys))
    )


def loss(z, family, probe=None, **options):
    sol = hbnode.solve(
        FAMILIES[family](z["theta"]), z["y0"], z["ts"], args=z["args"], probe=probe, **options
    )
    return weigh(sol.ys)


@cache
def reference(family):
    """The derivative of the exact loss: classical Runge–Kutta steps of a code of the test's own,
    differentiated forward."""
    z = inputs(family)
    flat, unravel = ravel_pytree(z)

    @jax.jit
    def gradient(flat):
        def exact_loss(flat):
            z = unravel(flat)
            ys, y = [z["y0"]], z["y0"]
            for a, b in ((0, 1), (1, 2)):
                y = reference_flow(
                    family, z["theta"], y, z["ts"][a], z["ts"][b], z["args"], steps=400
                )
                ys.append(y)
            return weigh(jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys))

        return jax.jacfwd(exact_loss)(flat)

    return unravel(gradient(flat))


@pytest.mark.parametrize(("family", "solver", "gradient"), CASES)
def test_gradient(family, solver, gradient):
    options = dict(
        solver={**RUNGE_KUTTA, **NYSTROM}[solver],
        gradient=GRADIENTS[gradient],
        rtol=1e-9,
        atol=1e-9,
        max_steps=1000,
    )
    got = jax.jit(jax.grad(lambda z: loss(z, family, **options)))(inputs(family))
    want = reference(family)
    groups = {
        "y0": ("y0",),
        "args": ("args",),
        "ends": ("ts",),
        "field": ("theta",),
    }
    for name, keys in groups.items():
        a, b = (ravel_pytree([g[k] for k in keys])[0] for g in (got, want))
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b), name
    for name in ("omega", "chi"):  # γ and ξ by themselves, where the family has them
        a, b = got["theta"][name], want["theta"][name]
        assert abs(a - b) <= 1e-6 * max(abs(b), 1e-3), name
    if "HBNODE" in family:
        assert abs(want["theta"]["omega"]) > 1e-3


@pytest.mark.parametrize("solver", [diffrax.Dopri5(), hbnode.Nystrom4(), hbnode.Nystrom8()])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_backwards_in_time(solver, gradient):
    problem = LINEAR["HBNODE"]
    t0, t1 = jnp.array(1.0), jnp.array(-0.5)

    def ours(theta, y0, t0, t1):
        sol = hbnode.solve(
            problem.make(theta), y0, jnp.stack([t0, t1]),
            solver=solver, gradient=GRADIENTS[gradient], rtol=1e-9, atol=1e-9,
        )  # fmt: skip
        return weigh([y[-1] for y in sol.ys])

    def exact(theta, y0, t0, t1):
        return weigh(problem.exact_jax(theta, y0, t1 - t0))

    arguments = problem.theta, problem.y0, t0, t1
    got = jax.jit(jax.grad(ours, argnums=(0, 1, 2, 3)))(*arguments)
    want = jax.grad(exact, argnums=(0, 1, 2, 3))(*arguments)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("family", "solver"),
    [("GHBNODE", "Dopri5"), ("HBNODE", "Dopri5"), ("HBNODE", "Nystrom8"), ("HBNODE", "Nystrom4")],
)
@pytest.mark.parametrize("gradient", [hbnode.DiscreteAdjoint(), hbnode.Checkpointed(2)])
def test_discrete_adjoint_is_autodiff_through_the_steps(family, solver, gradient):
    """Unrolls the steps that were accepted and lets JAX differentiate them."""
    from hbnode.solve.adjoints.base import forward_stepper

    solver = {**RUNGE_KUTTA, **NYSTROM}[solver]
    z = inputs(family) | {"ts": jnp.array([0.1, 1.0])}
    options = dict(solver=solver, gradient=gradient, rtol=1e-5, atol=1e-5, dt0=0.05)
    record = _accepted_grid(z, family, options)

    def unrolled(z):
        dynamics = FAMILIES[family](z["theta"])
        stepper = forward_stepper(solver, dynamics, z["args"])
        nodes = [z["ts"][0], *record[1:-1], z["ts"][1]]
        y = z["y0"]
        f = stepper.system.evaluate(nodes[0], y)
        for a, b in itertools.pairwise(nodes):
            step = stepper.step(a, b - a, y, f)
            y, f = step.y, step.f
        return weigh(jax.tree.map(lambda a, b: jnp.stack([a, b]), z["y0"], y))

    got = jax.jit(jax.value_and_grad(lambda z: loss(z, family, **options)))(z)
    want = jax.jit(jax.value_and_grad(unrolled))(z)
    for a, b in zip(got, want, strict=True):  # the value, the gradient
        a, b = ravel_pytree(a)[0], ravel_pytree(b)[0]
        assert np.linalg.norm(a - b) <= 1e-12 * np.linalg.norm(b)
    assert len(record) > 3


def _accepted_grid(z, family, options):
    """The nodes of the solve, from its record."""
    from hbnode.solve.adjoints.base import Inputs, Settings, solve_forward
    from hbnode.solve.control import Tolerances
    from hbnode.solve.solution import RESULTS

    dynamics = FAMILIES[family](z["theta"]).resolve()
    tolerances = Tolerances(jnp.array(options["rtol"]), jnp.array(options["atol"]))
    settings = Settings(
        options["solver"], tolerances, jnp.array(options["dt0"]), RESULTS.successful, 64, True
    )
    _, run = solve_forward(Inputs(dynamics, z["y0"], z["ts"], z["args"], None), settings, 64)
    n = int(run.accepted)
    return [*run.record.ts[:n], z["ts"][-1]]


@pytest.mark.parametrize("checkpoints", [2, 3, 8, 64, None])
def test_checkpointed_equals_discrete(checkpoints):
    """Whatever is kept, the same numbers come out, to rounding."""
    z = inputs("HBNODE")
    options = dict(solver=diffrax.Bosh3(), rtol=1e-7, atol=1e-7, max_steps=3000)

    def run(gradient):
        return jax.jit(jax.grad(lambda z: loss(z, "HBNODE", gradient=gradient, **options)))(z)

    want, got = run(hbnode.DiscreteAdjoint()), run(hbnode.Checkpointed(checkpoints))
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("jit", [True, False])
def test_closed_over_values(gradient, jit):
    """A field, a gate and a γ that are closures: no silent zero."""

    def ours(w, g, s):
        dynamics = hbnode.GHBNODE(lambda t, h, args: w * h, gamma=g, xi=0.3, gate=lambda m: m * s)
        sol = hbnode.solve(
            dynamics, (jnp.ones(2), jnp.full(2, 0.5)), [0.0, 1.0],
            gradient=GRADIENTS[gradient], rtol=1e-9, atol=1e-9,
        )  # fmt: skip
        return jnp.sum(sol.ys[0][-1])

    def exact(w, g, s):
        generator = jnp.stack([jnp.stack([0 * w, s]), jnp.stack([w - 0.3, -g])])
        return 2 * (jax.scipy.linalg.expm(generator) @ jnp.array([1.0, 0.5]))[0]

    at = jnp.array(-1.3), jnp.array(0.4), jnp.array(0.8)
    gradient_of = jax.grad(ours, argnums=(0, 1, 2))
    got = (jax.jit(gradient_of) if jit else gradient_of)(*at)
    np.testing.assert_allclose(got, jax.grad(exact, argnums=(0, 1, 2))(*at), rtol=1e-6)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_under_vmap_and_scan(gradient):
    z = inputs("HBNODE")
    options = dict(gradient=GRADIENTS[gradient], rtol=1e-6, atol=1e-6)
    factors = jnp.array([0.2, 1.0, 3.0])

    def one(theta, factor):
        y0 = jax.tree.map(lambda y: factor * y, z["y0"])
        return loss(z | {"theta": theta, "y0": y0}, "HBNODE", **options)

    each = [jax.grad(one)(z["theta"], f) for f in factors]
    batched = jax.jit(jax.vmap(jax.grad(one), in_axes=(None, 0)))(z["theta"], factors)

    @jax.jit
    @jax.grad
    def in_scan(theta):
        return jax.lax.scan(lambda total, f: (total + one(theta, f), None), 0.0, factors)[0]

    scanned = in_scan(z["theta"])
    for key in z["theta"]:
        alone = jnp.stack([g[key] for g in each])
        np.testing.assert_allclose(batched[key], alone, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(scanned[key], alone.sum(0), rtol=1e-9, atol=1e-12)


def test_inside_a_larger_model():
    """The design's example: encoder, ODE, decoder, and both counts from one call."""

    class Model(eqx.Module):
        lift_layer: eqx.nn.Linear
        dynamics: hbnode.HBNODE

        def lift(self, x):
            return x, jax.vmap(self.lift_layer)(x)

    k1, k2 = jax.random.split(jax.random.key(0))
    mlp = eqx.nn.MLP(2, 2, 14, 2, key=k1)
    model = Model(eqx.nn.Linear(2, 2, key=k2), hbnode.HBNODE(lambda t, h, args: jax.vmap(mlp)(h)))
    # the field is a closure over mlp's arrays, which are not differentiated here
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))

    def objective(params, x, probe):
        model = eqx.combine(params, static)
        sol = hbnode.solve(model.dynamics, model.lift(x), jnp.array([0.0, 1.0]), probe=probe)
        return jnp.mean(sol.ys[0][-1] ** 2), sol.stats.nfe

    params, static = eqx.partition(model, eqx.is_inexact_array)
    (_, forward), (grads, backward) = jax.jit(
        jax.value_and_grad(objective, argnums=(0, 2), has_aux=True)
    )(params, x, 0.0)
    assert forward > 0 and backward > 0
    assert jnp.all(grads.lift_layer.weight != 0) and grads.dynamics.gamma.omega != 0


def test_plain_numbers_are_fixed_and_arrays_learned():
    field = lambda t, h, args: -h  # noqa: E731
    leaves = lambda d: jax.tree.leaves(eqx.filter(d, eqx.is_inexact_array))  # noqa: E731
    assert not leaves(hbnode.HBNODE(field, gamma=0.5))
    assert len(leaves(hbnode.HBNODE(field))) == 1
    assert len(leaves(hbnode.GHBNODE(field))) == 2
    np.testing.assert_allclose(hbnode.Damping(omega=-3.0).value(), 1 / (1 + np.exp(3.0)))
    np.testing.assert_allclose(hbnode.Damping(omega=0.0, epsilon=4.0).value(), 2.0)
    np.testing.assert_allclose(hbnode.Restoring().value(), np.log(2.0))


def test_continuous_adjoint_with_its_own_solver_and_tolerance():
    z = inputs("HBNODE")
    adjoint = hbnode.ContinuousAdjoint(solver=diffrax.Tsit5(), rtol=1e-10, atol=1e-10)
    got = jax.grad(
        lambda z: loss(
            z, "HBNODE", solver=hbnode.Nystrom6(), gradient=adjoint, rtol=1e-9, atol=1e-9
        )
    )(z)
    want = reference("HBNODE")
    for key in ("theta", "y0"):
        a, b = ravel_pytree(got[key])[0], ravel_pytree(want[key])[0]
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)

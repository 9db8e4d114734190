"""`solve` against closed forms, and the contract of what it returns."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hbnode
from hbnode.solve import RESULTS
from problems import FAMILIES, LINEAR, OSCILLATORS, arguments, initial_state, parameters

EXPLICIT = {
    "Euler": diffrax.Euler(),
    "Heun": diffrax.Heun(),
    "Midpoint": diffrax.Midpoint(),
    "Ralston": diffrax.Ralston(),
    "Bosh3": diffrax.Bosh3(),
    "Tsit5": diffrax.Tsit5(),
    "Dopri5": diffrax.Dopri5(),
    "Dopri8": diffrax.Dopri8(),
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", LINEAR)
def test_linear_systems(name, backwards):
    problem = LINEAR[name]
    ts = np.array([0.0, 0.5, 0.8, 2.0]) * (-1 if backwards else 1)
    sol = hbnode.solve(problem.dynamics(), problem.y0, ts + 0.3, rtol=1e-10, atol=1e-10)
    for got, want in zip(*map(jax.tree.leaves, (sol.ys, problem.exact(ts))), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", OSCILLATORS)
def test_damped_oscillators(name):
    problem = OSCILLATORS[name]
    ts = np.linspace(0.0, 4.0, 9)
    sol = hbnode.solve(problem.dynamics(), problem.y0, ts, rtol=1e-10, atol=1e-10)
    for got, want in zip(sol.ys, problem.exact(ts), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-8)


@pytest.mark.parametrize("name", EXPLICIT)
def test_every_explicit_solver_agrees_with_diffrax(name):
    """Steps of one size, no error control: the same numbers as `diffrax.diffeqsolve`."""
    solver, problem = EXPLICIT[name], OSCILLATORS["underdamped"]
    dynamics = problem.dynamics()
    ts = [0.0, 0.5]
    term = diffrax.ODETerm(dynamics.vector_field)
    theirs = diffrax.diffeqsolve(term, solver, 0.0, 0.5, 0.125, problem.y0, max_steps=None)
    ours = hbnode.solve(
        dynamics, problem.y0, ts, solver=solver, dt0=0.125, rtol=1e6, atol=1e6, max_steps=10
    )
    if name == "Euler":  # the others take longer steps when they may
        assert ours.stats.accepted == 4
        for a, b in zip(ours.ys, theirs.ys, strict=True):
            np.testing.assert_allclose(a[-1:], b, rtol=1e-13)
    tight = hbnode.solve(
        dynamics,
        problem.y0,
        ts,
        solver=solver,
        dt0=1e-5 if name == "Euler" else None,
        rtol=1e-7,
        atol=1e-7,
        max_steps=10**6,
    )
    for got, want in zip(tight.ys, problem.exact(np.array(ts)), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5 if name == "Euler" else 1e-5)


def test_one_step_equals_diffrax():
    """One accepted step of each tableau, to rounding."""
    problem = OSCILLATORS["underdamped"]
    dynamics = problem.dynamics()
    term = diffrax.ODETerm(dynamics.vector_field)
    for name, solver in EXPLICIT.items():
        theirs = diffrax.diffeqsolve(term, solver, 0.0, 0.1, 0.1, problem.y0)
        ours = hbnode.solve(
            dynamics, problem.y0, [0.0, 0.1], solver=solver, dt0=0.1, rtol=1e3, atol=1e3
        )
        assert ours.stats.accepted == 1, name
        for a, b in zip(ours.ys, theirs.ys, strict=True):
            np.testing.assert_allclose(a[-1:], b, rtol=1e-14, err_msg=name)


def test_interpolation_of_each_solver():
    problem = OSCILLATORS["underdamped"]
    ts = np.linspace(0.0, 1.0, 23)
    orders = {"Heun": 1e-4, "Midpoint": 1e-4, "Ralston": 1e-4, "Bosh3": 1e-5}
    for name, solver in EXPLICIT.items():
        if name == "Euler":
            continue
        sol = hbnode.solve(
            problem.dynamics(), problem.y0, ts, solver=solver, rtol=1e-7, atol=1e-7, max_steps=10**5
        )
        for got, want in zip(sol.ys, problem.exact(ts), strict=True):
            np.testing.assert_allclose(got, want, atol=orders.get(name, 5e-6), err_msg=name)


@pytest.mark.parametrize("name", FAMILIES)
def test_state_shapes(name):
    """Images with batch axes are one system; ys is like y0 with a leading time axis."""
    shape = (2, 3, 4, 5)
    rng = np.random.default_rng(3)
    h, m = (jnp.asarray(rng.normal(size=shape)) for _ in range(2))
    template = FAMILIES[name](parameters())
    field = (
        (lambda t, y, args: -y[0] - args * y[1])
        if name == "SONODE"
        else (lambda t, h, args: -args * h)
    )
    dynamics = eqx.tree_at(lambda d: d.field, template, field)
    first_order = name in ("NODE", "ANODE")
    y0 = h if first_order else (h, m)
    sol = hbnode.solve(dynamics, y0, [0.0, 0.4, 1.0], args=jnp.array(0.5))
    for leaf in jax.tree.leaves(sol.ys):
        assert leaf.shape == (3, *shape)
    if first_order:
        np.testing.assert_allclose(sol.ys[-1], h * np.exp(-0.5), rtol=1e-4)


def test_anode_lift():
    dynamics = hbnode.ANODE(lambda t, h, args: h, augment=2)
    np.testing.assert_array_equal(dynamics.lift(jnp.ones((3, 2))), [[1, 1, 0, 0]] * 3)
    images = hbnode.ANODE(lambda t, h, args: h, augment=5, axis=-3)
    assert images.lift(jnp.ones((7, 1, 4, 4))).shape == (7, 6, 4, 4)
    with pytest.raises(ValueError, match="lift"):
        hbnode.solve(dynamics, jnp.ones((3, 1)), [0.0, 1.0])


def test_statistics_and_result():
    problem = OSCILLATORS["undamped"]
    sol = hbnode.solve(problem.dynamics(), problem.y0, [0.0, 3.0], solver=diffrax.Dopri5())
    steps = sol.stats.accepted + sol.stats.rejected
    assert sol.stats.nfe == 2 + 6 * steps
    assert sol.result == RESULTS.successful
    np.testing.assert_array_equal(sol.ts, [0.0, 3.0])


def test_one_time_is_no_solve():
    y0 = (jnp.ones(2), jnp.zeros(2))
    sol = hbnode.solve(hbnode.HBNODE(lambda t, h, args: -h), y0, [0.5])
    assert sol.stats.accepted == 0
    np.testing.assert_array_equal(sol.ys[0], [[1.0, 1.0]])


def test_warm_start_saves_evaluations():
    problem = OSCILLATORS["underdamped"]
    dynamics, tol = problem.dynamics(), dict(rtol=1e-8, atol=1e-8, solver=diffrax.Dopri5())
    first = hbnode.solve(dynamics, problem.y0, [0.0, 1.0], **tol)
    middle = jax.tree.map(lambda y: y[-1], first.ys)
    cold = hbnode.solve(dynamics, middle, [1.0, 2.0], **tol)
    warm = hbnode.solve(dynamics, middle, [1.0, 2.0], dt0=first.dt, **tol)
    assert warm.stats.nfe < cold.stats.nfe
    for got, want in zip(warm.ys, problem.exact(np.array([1.0, 2.0])), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_dt_is_not_the_cut_last_step():
    problem = OSCILLATORS["underdamped"]
    whole = hbnode.solve(problem.dynamics(), problem.y0, [0.0, 1.0], dt0=0.4, rtol=1e3, atol=1e3)
    assert whole.dt >= 0.4


def test_vmap_gives_every_sample_its_own_steps():
    problem = OSCILLATORS["underdamped"]
    dynamics = problem.dynamics()
    scales = jnp.array([0.0, 1.0, 1e4])
    y0 = tuple(jnp.outer(scales, y) for y in problem.y0)

    def one(y0):
        return hbnode.solve(dynamics, y0, [0.0, 0.7, 3.0], rtol=0.0, atol=1e-6)

    together = jax.jit(jax.vmap(one))(y0)
    assert len(set(together.stats.nfe.tolist())) == 3
    for i in range(3):
        alone = one(jax.tree.map(lambda y, i=i: y[i], y0))
        assert alone.stats.nfe == together.stats.nfe[i]
        assert alone.stats.rejected == together.stats.rejected[i]
        for a, b in zip(alone.ys, together.ys, strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-12)


def test_under_scan_and_jit_with_traced_times():
    """The recurrent pattern: interval after interval, the step size carried along."""
    problem = LINEAR["HBNODE"]
    dynamics = problem.dynamics()
    times = jnp.array([0.0, 0.3, 0.35, 1.2])

    @jax.jit
    def run(y0, times):
        def interval(carry, ends):
            y, dt = carry
            sol = hbnode.solve(
                dynamics, y, ends, dt0=dt, rtol=1e-10, atol=1e-10, solver=hbnode.Nystrom6()
            )
            return (jax.tree.map(lambda x: x[-1], sol.ys), sol.dt), sol.stats.nfe

        ends = jnp.stack([times[:-1], times[1:]], axis=1)
        return jax.lax.scan(interval, (y0, jnp.array(0.1)), ends)

    (y, _), nfe = run(problem.y0, times)
    assert nfe.shape == (3,)
    for got, want in zip(y, problem.exact([1.2]), strict=True):
        np.testing.assert_allclose(got[None], want, rtol=1e-7)


def test_closures_over_arrays_and_modules():
    theta, args = parameters(), arguments()
    by_partial = FAMILIES["HBNODE"](theta)
    module = eqx.nn.MLP(3, 3, 8, 1, key=jax.random.key(0))
    y0 = initial_state("HBNODE")
    hbnode.solve(hbnode.HBNODE(lambda t, h, args: module(h)), y0, [0.0, 1.0])
    a = hbnode.solve(by_partial, y0, [0.0, 1.0], args=args)
    b = hbnode.solve(
        hbnode.HBNODE(lambda t, h, _: by_partial.field(t, h, args), by_partial.gamma),
        y0,
        [0.0, 1.0],
    )
    np.testing.assert_allclose(a.ys[0], b.ys[0], rtol=1e-14)


def test_float32_end_to_end():
    theta, args = (
        jax.tree.map(lambda x: x.astype(jnp.float32), x) for x in (parameters(), arguments())
    )
    for name, make in FAMILIES.items():
        y0 = jax.tree.map(lambda x: x.astype(jnp.float32), initial_state(name))

        def loss(theta, y0, make=make):
            sol = hbnode.solve(make(theta), y0, [0.0, 0.5, 1.0], args=args, rtol=1e-4, atol=1e-4)
            return sum(jnp.sum(y**2) for y in jax.tree.leaves(sol.ys)), sol

        (_, sol), grads = eqx.filter_jit(jax.value_and_grad(loss, has_aux=True))(theta, y0)
        assert all(y.dtype == jnp.float32 for y in jax.tree.leaves(sol.ys)), name
        assert sol.dt.dtype == sol.ts.dtype == jnp.float32
        assert all(g.dtype == jnp.float32 and jnp.all(jnp.isfinite(g)) for g in grads.values())


def test_default_solver():
    from hbnode.solve.solve import default_solver

    field = lambda t, h, args: -h  # noqa: E731
    two, three = jnp.array([0.0, 1.0]), jnp.array([0.0, 0.5, 1.0])
    assert isinstance(default_solver(hbnode.HBNODE(field), two), hbnode.Nystrom8)
    assert isinstance(default_solver(hbnode.HBNODE(field), three), hbnode.Nystrom4)
    for dynamics in (hbnode.NODE(field), hbnode.GHBNODE(field), hbnode.SONODE(field)):
        assert isinstance(default_solver(dynamics, two), diffrax.Dopri5)
    assert isinstance(default_solver(hbnode.HBNODE(field, gamma=50.0), two), diffrax.Dopri5)

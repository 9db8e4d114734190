"""Bad input: an error that names the argument, says its value, and what to do."""

import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import hbnode
from hbnode.solve import RESULTS

H = jnp.array([1.0, 2.0])
FIELD = lambda t, h, args: -h  # noqa: E731
HB = hbnode.HBNODE(FIELD, gamma=0.1)


@pytest.fixture(autouse=True, scope="module")
def _as_a_user_sees_it():
    """Without the run-time type checks of the test session, which would complain first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def solve(dynamics=HB, y0=(H, H), ts=(0.0, 1.0), **options):
    return hbnode.solve(dynamics, y0, ts, **options)


WRONG = {
    "h for (h, m)": (dict(y0=H), TypeError, r"pair \(h0, m0\).*zeros_like"),
    "(h, m) for h": (
        dict(dynamics=hbnode.NODE(FIELD)),
        TypeError,
        "y0 must be one array.*length 2",
    ),
    "h for (h, v)": (dict(dynamics=hbnode.SONODE(FIELD), y0=H), TypeError, r"pair \(h0, v0\)"),
    "triple": (dict(y0=(H, H, H)), TypeError, "length 3"),
    "shapes of h and m": (dict(y0=(H, jnp.ones(3))), ValueError, r"\(2,\) and \(3,\)"),
    "dtypes of h and m": (dict(y0=(H, H.astype(jnp.float32))), TypeError, "float64 and float32"),
    "integers": (dict(y0=(jnp.array([1, 2]), jnp.array([1, 2]))), TypeError, "int64.*astype"),
    "half precision": (dict(y0=(H.astype(jnp.float16),) * 2), TypeError, "float16.*float32"),
    "shape of f": (
        dict(dynamics=hbnode.HBNODE(lambda t, h, args: jnp.ones(3))),
        ValueError,
        r"shape \(3,\) for a state h of shape \(2,\)",
    ),
    "dtype of f": (
        dict(dynamics=hbnode.HBNODE(lambda t, h, args: h.astype(jnp.float32))),
        TypeError,
        "dtype float32",
    ),
    "f is a pair": (
        dict(dynamics=hbnode.HBNODE(lambda t, h, args: (h, h))),
        TypeError,
        "one array",
    ),
    "gate's shape": (
        dict(dynamics=hbnode.GHBNODE(FIELD, gate=lambda m: jnp.sum(m))),
        ValueError,
        "`gate` must be elementwise",
    ),
    "ts constant": (dict(ts=(0.0, 0.0)), ValueError, "`ts` must be finite and strictly"),
    "ts zigzag": (
        dict(ts=(0.0, 1.0, 0.5)),
        ValueError,
        "strictly increasing or strictly decreasing",
    ),
    "ts nan": (dict(ts=(0.0, np.nan)), ValueError, "`ts` must be finite.*nan"),
    "ts infinite": (dict(ts=(0.0, np.inf)), ValueError, "`ts` must be finite"),
    "ts a number": (dict(ts=1.0), TypeError, r"\[0.0, 1.0\]"),
    "ts a matrix": (dict(ts=np.zeros((2, 2))), ValueError, "one-dimensional"),
    "rtol negative": (dict(rtol=-1e-3), ValueError, "`rtol`.*-0.001"),
    "atol nan": (dict(atol=np.nan), ValueError, "`atol`.*nan"),
    "no tolerance": (dict(rtol=0.0, atol=0.0), ValueError, "one of them positive"),
    "rtol a vector": (dict(rtol=np.ones(2)), TypeError, "`rtol` must be a number"),
    "dt0 zero": (dict(dt0=0.0), ValueError, "`dt0` must be finite and not zero"),
    "dt0 infinite": (dict(dt0=np.inf), ValueError, "`dt0`"),
    "max_steps": (
        dict(max_steps=0),
        ValueError,
        "`max_steps` must be a positive whole number, got 0",
    ),
    "solver class": (dict(solver=diffrax.Dopri5), TypeError, r"Dopri5\(\) with parentheses"),
    "implicit solver": (dict(solver=diffrax.Kvaerno5()), TypeError, "Kvaerno5"),
    "Euler": (dict(solver=diffrax.Euler()), ValueError, "say which with `dt0`"),
    "gradient": (dict(gradient="discrete"), TypeError, "hbnode.DiscreteAdjoint"),
    "dynamics": (dict(dynamics=FIELD), TypeError, r"hbnode.NODE\(f\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case):
    options, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        solve(**options)


CONSTRUCTION = {
    "gamma": (lambda: hbnode.HBNODE(FIELD, gamma=-0.1), ValueError, "`gamma`.*-0.1.*Damping"),
    "gamma array": (lambda: hbnode.HBNODE(FIELD, gamma=jnp.array(-1.0)), ValueError, "`gamma`"),
    "gamma vector": (lambda: hbnode.HBNODE(FIELD, gamma=jnp.ones(2)), ValueError, "scalar"),
    "gamma text": (
        lambda: hbnode.HBNODE(FIELD, gamma="big"),
        TypeError,
        "`gamma` must be a number",
    ),
    "xi": (lambda: hbnode.GHBNODE(FIELD, xi=-2.0), ValueError, "`xi`.*-2.0.*Restoring"),
    "gate": (lambda: hbnode.GHBNODE(FIELD, gate=None), TypeError, "`gate`"),
    "epsilon": (lambda: hbnode.Damping(epsilon=0.0), ValueError, "`epsilon`"),
    "augment": (lambda: hbnode.ANODE(FIELD, augment=-1), ValueError, "`augment`"),
    "norm": (lambda: hbnode.ContinuousAdjoint("rms"), ValueError, "`norm`.*'rms'"),
    "checkpoints": (lambda: hbnode.Checkpointed(1), ValueError, "`checkpoints`.*1"),
}


@pytest.mark.parametrize("case", CONSTRUCTION)
def test_refused_at_construction(case):
    make, error, message = CONSTRUCTION[case]
    with pytest.raises(error, match=message):
        make()


def compiled(throw, **fixed):
    """Values that only the compiled program sees."""

    @jax.jit
    def run(values):
        gamma = values.pop("gamma", None)
        dynamics = HB if gamma is None else hbnode.HBNODE(FIELD, gamma=gamma)
        ts = values.pop("ts", jnp.array([0.0, 1.0]))
        return solve(dynamics, ts=ts, throw=throw, **values, **fixed)

    return run


VALUES = {
    "ts": (jnp.array([0.0, jnp.nan]), RESULTS.bad_times, "`ts` must be finite"),
    "rtol": (jnp.array(-1.0), RESULTS.bad_tolerances, "`rtol` and `atol`"),
    "dt0": (jnp.array(0.0), RESULTS.bad_dt0, "`dt0`"),
    "gamma": (jnp.array(-0.5), RESULTS.bad_coefficients, "must be finite and not negative"),
}


@pytest.mark.parametrize("name", VALUES)
def test_bad_values_at_run_time(name):
    value, code, message = VALUES[name]
    with pytest.raises(RuntimeError, match=message):
        jax.block_until_ready(compiled(True)({name: value}))
    sol = compiled(False)({name: value})
    assert sol.result == code
    assert sol.stats.accepted == 0 and jnp.all(jnp.isnan(sol.ys[0][-1]))


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("solver", [diffrax.Dopri5(), hbnode.Nystrom4(), hbnode.Nystrom8()])
def test_a_field_that_returns_nan_says_where(solver, jit):
    dynamics = hbnode.HBNODE(lambda t, h, args: -h + jnp.sqrt(0.7 - t), gamma=0.1)
    run = lambda throw: solve(dynamics, solver=solver, throw=throw)  # noqa: E731
    run = jax.jit(run, static_argnums=0) if jit else run
    with pytest.raises(RuntimeError, match=r"t = 0\.(69|7).*NaN or infinity"):
        jax.block_until_ready(run(True))
    sol = run(False)
    assert sol.result == RESULTS.field_not_finite
    assert all(jnp.issubdtype(n.dtype, jnp.integer) for n in jax.tree.leaves(sol.stats))
    assert sol.stats.nfe > 0 and jnp.isfinite(sol.dt)
    assert jnp.all(jnp.isfinite(sol.ys[0][0])) and jnp.all(jnp.isnan(sol.ys[0][-1]))


def test_nan_at_the_start():
    dynamics = hbnode.HBNODE(lambda t, h, args: h * jnp.nan)
    with pytest.raises(RuntimeError, match=r"t = 0\. The field returned NaN"):
        solve(dynamics)
    assert solve(dynamics, throw=False).stats.accepted == 0


def test_fixed_steps_that_overflow():
    dynamics = hbnode.NODE(lambda t, h, args: h**3 * 1e10)
    sol = solve(dynamics, H, (0.0, 10.0), solver=diffrax.Euler(), dt0=0.5, throw=False)
    assert sol.result == RESULTS.field_not_finite


def test_finite_time_blow_up():
    """h' = h² from 1 ends at t = 1: the step size underflows there."""
    dynamics = hbnode.NODE(lambda t, h, args: h**2)
    with pytest.raises(RuntimeError, match=r"t = (1|0\.99999)"):
        solve(dynamics, jnp.array([1.0]), (0.0, 2.0), solver=diffrax.Dopri5())


def test_step_limit():
    fast = hbnode.HBNODE(lambda t, h, args: -1e4 * h, gamma=0.0)
    with pytest.raises(RuntimeError, match="max_steps"):
        solve(fast, max_steps=7)
    sol = solve(fast, ts=(0.0, 1e-3, 1.0), max_steps=7, throw=False)
    assert sol.result == RESULTS.max_steps_reached
    assert sol.stats.accepted + sol.stats.rejected == 7
    assert jnp.all(jnp.isfinite(sol.ys[0][1])) and jnp.all(jnp.isnan(sol.ys[0][2]))


def test_step_size_underflow():
    """A jump that no step size resolves to the tolerance asked for."""
    jump = hbnode.NODE(lambda t, h, args: jnp.where(t < 0.5, 1.0, 1e12) * jnp.ones_like(h))
    sol = solve(jump, H, rtol=0.0, atol=1e-13, throw=False, solver=diffrax.Dopri5())
    assert sol.result == RESULTS.dt_min_reached


def test_one_sample_fails_the_others_go_on():
    def one(c):
        dynamics = hbnode.NODE(lambda t, h, args: c * h**2)
        return hbnode.solve(dynamics, jnp.array([1.0]), [0.0, 2.0], throw=False)

    sol = jax.vmap(one)(jnp.array([0.1, 1.0]))
    assert (sol.result == RESULTS.successful).tolist() == [True, False]
    np.testing.assert_allclose(sol.ys[0, -1, 0], 1 / (1 - 0.2), rtol=1e-4)


def test_gradient_of_a_failed_solve_is_not_silently_wrong():
    def loss(c, gradient):
        dynamics = hbnode.NODE(lambda t, h, args: c * h**2)
        sol = hbnode.solve(dynamics, jnp.array([1.0]), [0.0, 2.0], throw=False, gradient=gradient)
        return jnp.sum(sol.ys[-1])

    value, slope = jax.value_and_grad(loss)(jnp.array(1.0), hbnode.ContinuousAdjoint())
    assert jnp.isnan(value) and jnp.isnan(slope)
    value, slope = jax.value_and_grad(loss)(jnp.array(1.0), hbnode.DiscreteAdjoint())
    assert jnp.isnan(value)


def test_failing_backward_solve_raises():
    """Backwards a strongly damped system is unstable; a step limit that the way there respects."""

    def loss(g):
        dynamics = hbnode.HBNODE(lambda t, h, args: -1e3 * h, gamma=g)
        sol = solve(
            dynamics, solver=diffrax.Dopri5(), max_steps=40, rtol=1e-1, atol=1e-1,
            gradient=hbnode.ContinuousAdjoint(rtol=1e-9, atol=1e-9),
        )  # fmt: skip
        return jnp.sum(sol.ys[0][-1])

    with pytest.raises(RuntimeError, match="backward solve of ContinuousAdjoint"):
        jax.grad(loss)(jnp.array(1.0))


def test_one_warning_below_the_resolution_of_the_dtype():
    y0 = (H.astype(jnp.float32),) * 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hbnode.solve(HB, y0, [0.0, 0.1], rtol=1e-8, atol=1e-8, max_steps=50, throw=False)
    assert len(caught) == 1 and "resolution of float32" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hbnode.solve(HB, y0, [0.0, 0.1], rtol=1e-8, atol=1e-3)
        solve(rtol=1e-9, atol=1e-9)


def test_dynamics_of_wrong_arguments_keep_their_own_error():
    """What a field raises itself reaches the user as it is."""

    def field(t, h, args):
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        solve(hbnode.HBNODE(field))


def test_coefficients_may_be_traced():
    grad = jax.jit(jax.grad(lambda g: jnp.sum(solve(hbnode.HBNODE(FIELD, gamma=g)).ys[0][-1])))(
        jnp.array(0.3)
    )
    assert jnp.isfinite(grad)
    assert eqx.is_array(grad)


def test_known_coefficients_inside_jit():
    """A γ that is an array, but known, in a function that is being traced."""
    gamma = jnp.array(0.3)

    @jax.jit
    def run(y0):
        return solve(hbnode.HBNODE(FIELD, gamma=gamma), y0).ys[0][-1]

    assert jnp.all(jnp.isfinite(run((H, H))))
    negative = jnp.array(-0.3)
    with pytest.raises(ValueError, match="`gamma`"):
        jax.jit(lambda y0: solve(hbnode.HBNODE(FIELD, gamma=negative), y0))((H, H))

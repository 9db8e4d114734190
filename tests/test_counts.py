"""Counts of evaluations against a host callback inside the field, in a grid of cases."""

import itertools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hbnode
from problems import FAMILIES, arguments, initial_state, parameters

CALLS = []

SOLVERS = {
    "Dopri5": diffrax.Dopri5(),
    "Tsit5": diffrax.Tsit5(),
    "Heun": diffrax.Heun(),
    "Nystrom4": hbnode.Nystrom4(),
    "Nystrom5": hbnode.Nystrom5(),
    "Nystrom6": hbnode.Nystrom6(),
    "Nystrom8": hbnode.Nystrom8(),
}
GRADIENTS = {
    "discrete": hbnode.DiscreteAdjoint(),
    "checkpointed": hbnode.Checkpointed(2),
    "continuous-state": hbnode.ContinuousAdjoint("state"),
    "continuous-full": hbnode.ContinuousAdjoint("full"),
}
FAMILY_SOLVERS = [
    (family, solver)
    for family, solver in itertools.product(FAMILIES, SOLVERS)
    if not solver.startswith("Nystrom") or family in ("HBNODE", "GHBNODE-identity")
]


def counted(family):
    """The dynamics, with a field that tells the host of every evaluation."""
    import equinox as eqx

    dynamics = FAMILIES[family](parameters())
    inner = dynamics.field

    def field(t, h, args):
        jax.debug.callback(lambda t: CALLS.append(float(t)), t)
        return args["stiff"] * inner(t, h, args)

    return eqx.tree_at(lambda d: d.field, dynamics, field)


def calls():
    jax.effects_barrier()
    n = len(CALLS)
    CALLS.clear()
    return n


def program(family, solver, gradient, with_dt0, ts=(0.0, 1.0)):
    dynamics = counted(family)

    tol = 1e-2 if solver == "Heun" else 1e-5

    def run(y0, probe, stiff):
        args = arguments() | {"stiff": stiff}
        sol = hbnode.solve(
            dynamics, y0, jnp.array(ts), args=args, solver=SOLVERS[solver],
            gradient=GRADIENTS[gradient], dt0=0.2 if with_dt0 else None,
            rtol=tol, atol=tol, probe=probe, max_steps=2000,
        )  # fmt: skip
        return sum(jnp.sum(y[-1]) for y in jax.tree.leaves(sol.ys)), sol.stats

    return run


@pytest.mark.parametrize("with_dt0", [False, True], ids=["cold", "dt0"])
@pytest.mark.parametrize(("family", "solver"), FAMILY_SOLVERS)
def test_forward(family, solver, with_dt0):
    run = jax.jit(program(family, solver, "discrete", with_dt0))
    y0 = initial_state(family)
    seen = set()
    for stiff in (0.0, 1.0, 200.0):
        calls()
        _, stats = jax.block_until_ready(run(y0, 0.0, stiff))
        assert calls() == stats.nfe
        seen.add(bool(stats.rejected > 0))
    if with_dt0:
        assert seen == {False, True}  # with and without rejected steps


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("with_dt0", [False, True], ids=["cold", "dt0"])
@pytest.mark.parametrize(("family", "solver"), FAMILY_SOLVERS)
def test_backward(family, solver, with_dt0, gradient):
    """What the gradient of `probe` says is what the host saw."""
    run = program(family, solver, gradient, with_dt0)
    both = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))
    for stiff in (1.0, 200.0):
        calls()
        (_, stats), (_, backward) = jax.block_until_ready(both(initial_state(family), 0.0, stiff))
        assert calls() == stats.nfe + backward
    if with_dt0:
        assert stats.rejected > 0


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("solver", ["Dopri5", "Nystrom4", "Nystrom8"])
def test_with_times_between(solver, gradient):
    run = program("HBNODE", solver, gradient, False, ts=(0.0, 0.2, 0.25, 0.9, 1.0))
    both = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))
    calls()
    (_, stats), (_, backward) = jax.block_until_ready(both(initial_state("HBNODE"), 0.0, 3.0))
    assert calls() == stats.nfe + backward


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("solver", ["Dopri5", "Nystrom6"])
def test_under_vmap_each_sample_has_its_own_counts(solver, gradient):
    """A sample counts what it counts alone, where the host confirms it."""
    run = program("HBNODE", solver, gradient, False)
    both = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)
    factors = jnp.array([0.3, 1.0, 3.0])
    y0 = jax.tree.map(lambda y: factors[:, None] * y[None, :], initial_state("HBNODE"))
    stiff = jnp.array([1.0, 30.0, 60.0])
    alone, forward, backward = jax.jit(both), [], []
    for i in range(3):
        calls()
        (_, stats), (_, n) = jax.block_until_ready(
            alone(jax.tree.map(lambda y, i=i: y[i], y0), 0.0, stiff[i])
        )
        assert calls() == stats.nfe + n
        forward.append(int(stats.nfe))
        backward.append(float(n))
    (_, stats), (_, n) = jax.jit(jax.vmap(both))(y0, jnp.zeros(3), stiff)
    assert stats.nfe.tolist() == forward and n.tolist() == backward
    assert len(set(forward)) > 1

    # a probe that all samples share collects the sum
    def total(probe):
        return jnp.sum(jax.vmap(lambda y, s: run(y, probe, s)[0])(y0, stiff))

    assert jax.jit(jax.grad(total))(0.0) == sum(backward)


def test_checkpointed_counts_steps_taken_again():
    """More than the discrete adjoint, by whole steps."""
    ys = {}
    for gradient in ("discrete", "checkpointed"):
        run = program("HBNODE", "Dopri5", gradient, False)
        (_, stats), n = jax.value_and_grad(run, argnums=1, has_aux=True)(
            initial_state("HBNODE"), 0.0, 20.0
        )
        ys[gradient] = n, stats.accepted
    (n, steps), (m, _) = ys["discrete"], ys["checkpointed"]
    assert n == 6 * steps + 1
    assert m > n and (m - n) % 6 == 0


def test_probe_scans_to_a_sum():
    run = program("HBNODE", "Nystrom8", "discrete", False)

    def total(probe):
        def interval(y, _):
            value, stats = run(y, probe, 1.0)
            return y, (value, stats.nfe)

        _, (values, nfe) = jax.lax.scan(interval, initial_state("HBNODE"), None, length=3)
        return jnp.sum(values), nfe

    n, nfe = jax.jit(jax.grad(total, has_aux=True))(0.0)
    single = jax.grad(lambda p: run(initial_state("HBNODE"), p, 1.0)[0])(0.0)
    assert n == 3 * single
    np.testing.assert_array_equal(nfe, nfe[0])

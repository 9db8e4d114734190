"""Samples on clocks of their own, against solving each sample by itself."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hbnode
from hbnode.dynamics import Paced
from problems import OSCILLATORS

PACES = jnp.array([0.3, 1.0, 2.2])
SOLVERS = {
    "Dopri5": diffrax.Dopri5(),
    "Nystrom4": hbnode.Nystrom4(),
    "Nystrom5": hbnode.Nystrom5(),
    "Nystrom6": hbnode.Nystrom6(),
    "Nystrom8": hbnode.Nystrom8(),
}
solvers = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())


def state(problem):
    return tuple(jnp.broadcast_to(x, (3, 1)) for x in problem.y0)


@solvers
@pytest.mark.parametrize("problem", OSCILLATORS.values(), ids=OSCILLATORS.keys())
def test_each_sample_is_where_its_own_time_takes_it(solver, problem):
    """Closed form: at s the sample of pace p is the oscillator at time p·s."""
    ts = jnp.array([0.0, 0.5, 1.0])
    sol = hbnode.solve(
        Paced(problem.dynamics(), PACES), state(problem), ts, solver=solver, rtol=1e-9, atol=1e-9
    )
    for got, want in zip(sol.ys, problem.exact(ts[:, None] * PACES[None]), strict=True):
        np.testing.assert_allclose(got, want, atol=3e-8)


FIELD = {
    "NODE": lambda w: hbnode.NODE(lambda t, h, args: jnp.tanh(h @ w)),
    "SONODE": lambda w: hbnode.SONODE(lambda t, y, args: jnp.tanh(y[0] @ w) - y[1]),
    "HBNODE": lambda w: hbnode.HBNODE(lambda t, h, args: jnp.tanh(h @ w), gamma=0.7),
    "GHBNODE": lambda w: hbnode.GHBNODE(lambda t, h, args: jnp.tanh(h @ w), gamma=0.7, xi=0.4),
}
CASES = [
    *((family, "Dopri5", hbnode.DiscreteAdjoint()) for family in FIELD),
    *((family, "Dopri5", hbnode.ContinuousAdjoint("full")) for family in FIELD),
    *(("HBNODE", solver, hbnode.DiscreteAdjoint()) for solver in SOLVERS if solver != "Dopri5"),
    ("HBNODE", "Nystrom6", hbnode.Checkpointed(4)),
    ("HBNODE", "Nystrom6", hbnode.ContinuousAdjoint(solver=diffrax.Dopri5())),
]


@pytest.mark.parametrize(("family", "solver", "gradient"), CASES)
def test_gradients_are_those_of_the_samples_alone(family, solver, gradient):
    """In the state, the parameters and the paces: the same as to solve sample by sample over
    [0, p]."""
    h = jnp.array([[1.0, 0.2], [-0.4, 0.9], [0.3, -1.1]])
    w = jnp.array([[0.5, -1.2], [1.1, 0.3]])
    y0 = h if family == "NODE" else (h, h[::-1] / 2)
    options = dict(rtol=1e-10, atol=1e-10)

    def together(w, y0, paces):
        sol = hbnode.solve(
            Paced(FIELD[family](w), paces), y0, [0.0, 1.0],
            solver=SOLVERS[solver], gradient=gradient, **options,
        )  # fmt: skip
        return sum(jnp.sum(jnp.sin(y[-1])) for y in jax.tree.leaves(sol.ys))

    def alone(w, y0, paces):
        def one(y, p):
            ts = jnp.stack([jnp.zeros_like(p), p])
            sol = hbnode.solve(FIELD[family](w), y, ts, solver=diffrax.Dopri5(), **options)
            return sum(jnp.sum(jnp.sin(y[-1])) for y in jax.tree.leaves(sol.ys))

        return sum(one(jax.tree.map(lambda x, i=i: x[i], y0), paces[i]) for i in range(3))

    numbers = (0, 1) if isinstance(gradient, hbnode.ContinuousAdjoint) else (0, 1, 2)
    got = jax.jit(jax.grad(together, numbers))(w, y0, PACES)
    want = jax.jit(jax.grad(alone, numbers))(w, y0, PACES)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_slower_clock_takes_fewer_evaluations():
    """One system, one step size: counts follow the fastest sample."""
    problem = OSCILLATORS["underdamped"]

    def nfe(paces):
        sol = hbnode.solve(
            Paced(problem.dynamics(), paces), state(problem), [0.0, 1.0], solver=diffrax.Dopri5(),
            rtol=1e-8, atol=1e-8,
        )  # fmt: skip
        return int(sol.stats.nfe)

    assert nfe(PACES / 4) < nfe(PACES)


def test_mistakes_are_named():
    problem = OSCILLATORS["underdamped"]
    with pytest.raises(ValueError, match="one number for each sample"):
        hbnode.solve(Paced(problem.dynamics(), jnp.ones(2)), state(problem), [0.0, 1.0])
    with pytest.raises(ValueError, match="one clock"):
        hbnode.solve(
            Paced(problem.dynamics(), PACES), state(problem), [0.0, 1.0],
            gradient=hbnode.ContinuousAdjoint(),
        )  # fmt: skip
    with pytest.raises(TypeError, match="multiply the paces"):
        Paced(Paced(problem.dynamics(), PACES), PACES)

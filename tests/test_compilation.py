"""How often a training step is traced: once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import hbnode


@pytest.mark.parametrize(
    "gradient", [hbnode.DiscreteAdjoint(), hbnode.Checkpointed(), hbnode.ContinuousAdjoint()]
)
def test_a_training_step_is_traced_once(gradient):
    traces = []
    mlp = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    params, static = eqx.partition(mlp, eqx.is_inexact_array)
    optimiser = optax.sgd(1e-2)

    def loss(params, x, probe):
        traces.append(None)
        net = eqx.combine(params["net"], static)
        dynamics = hbnode.HBNODE(lambda t, h, args: jax.vmap(net)(h), params["gamma"])
        sol = hbnode.solve(
            dynamics, (x, jnp.zeros_like(x)), [0.0, 1.0], gradient=gradient, probe=probe
        )
        return jnp.mean((sol.ys[0][-1] - 1.0) ** 2), sol.stats

    @jax.jit
    def update(params, state, x):
        both = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)
        (value, _), (grads, nfe) = both(params, x, 0.0)
        changes, state = optimiser.update(grads, state)
        return optax.apply_updates(params, changes), state, value, nfe

    params = {"net": params, "gamma": hbnode.Damping()}
    state = optimiser.init(params)
    rng = np.random.default_rng(0)
    values, counts = [], []
    for _ in range(4):
        params, state, value, nfe = update(params, state, jnp.asarray(rng.normal(size=(5, 2))))
        values.append(float(value))
        counts.append(float(nfe))
    assert len(traces) == 1
    assert min(counts) > 0 and len(values) == 4


def test_the_field_is_traced_a_fixed_number_of_times():
    """Whatever the number of stages and steps: once to check shapes, once to hoist closures."""
    for solver in (hbnode.Nystrom4(), hbnode.Nystrom8()):
        traces = []

        def field(t, h, args, traces=traces):
            traces.append(None)
            return -h

        hbnode.solve(hbnode.HBNODE(field), (jnp.ones(2), jnp.zeros(2)), [0.0, 1.0], solver=solver)
        assert len(traces) == 2


def test_repeated_calls_outside_jit_reuse_the_program():
    traces = []

    def field(t, h, args):
        traces.append(None)
        return -args * h

    dynamics = hbnode.HBNODE(field)
    y0 = (jnp.ones(2), jnp.zeros(2))
    counts = []
    for scale in (1.0, 2.0, 3.0):
        hbnode.solve(dynamics, y0, [0.0, scale], args=jnp.array(scale), rtol=1e-5 * scale)
        counts.append(len(traces))
    # after the first call only the check of shapes is left
    assert counts == [2, 3, 4]

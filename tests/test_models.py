"""The networks and models around a solve: sizes, gradients, counts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hbnode import HBNODE, NODE, ContinuousAdjoint, DiscreteAdjoint
from hbnode.experiments import EXPERIMENTS, FAMILIES
from hbnode.models import (
    FAILURES,
    Convolution,
    ConvolutionalStart,
    Dense,
    DenseCell,
    DenseField,
    Linear,
    LinearStart,
    Method,
    OdeBlock,
    OdeRnn,
    SumCell,
    ZeroStart,
    clip_adjoint,
    field_inputs,
    hard_tanh,
    is_second_order,
    leaky_relu,
    make_dynamics,
    position,
)
from hbnode.models.networks import same_convolution
from hbnode.solve import Dopri5
from hbnode.tables import parameters

SIZES = [
    (task, model)
    for task, experiment in EXPERIMENTS.items()
    if "training" in experiment.sections
    for model in (*experiment.models, *experiment.others)
]
TIGHT = Method(1e-9, 1e-9)


@pytest.mark.parametrize(("task", "model"), SIZES)
def test_sizes_are_those_of_the_paper(task, model):
    ours = parameters(task, model)
    published = EXPERIMENTS[task].published.get(model)
    assert ours > 0
    if published is None:
        assert model in EXPERIMENTS[task].others
    else:
        assert abs(ours - published) <= 5


def test_every_published_size_is_checked():
    assert {(t, m) for t, e in EXPERIMENTS.items() for m in e.published} <= set(SIZES)


def test_activations():
    x = jnp.array([-7.0, -2.0, 0.0, 3.0, 9.0])
    np.testing.assert_array_equal(hard_tanh(x), [-5, -2, 0, 3, 5])
    np.testing.assert_allclose(leaky_relu(x), [-2.1, -0.6, 0, 3, 9])


def test_initial_weights_are_uniform_by_the_fan_in():
    layer = Linear(400, 300, key=jax.random.key(0))
    for x in (layer.weight, layer.bias):
        assert float(jnp.abs(x).max()) <= 0.05
        np.testing.assert_allclose(jnp.std(x), 0.05 / 3**0.5, rtol=0.1)
    convolution = Convolution(3, 200, 3, time=True, key=jax.random.key(0))
    assert float(jnp.abs(convolution.weight).max()) <= 1 / 6  # 3 channels and the time, 3 × 3
    assert float(jnp.abs(convolution.time_weight).max()) == pytest.approx(1 / 6, rel=0.01)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_convolution_has_the_gradients_of_lax(size):
    keys = jax.random.split(jax.random.key(1), 3)
    x = jax.random.normal(keys[0], (2, 5, 7, 3))
    weight = jax.random.normal(keys[1], (size, size, 3, 4))
    y_bar = jax.random.normal(keys[2], (2, 5, 7, 4))

    def lax_convolution(x, weight):
        return jax.lax.conv_general_dilated(
            x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    ours, our_vjp = jax.vjp(same_convolution, x, weight)
    theirs, their_vjp = jax.vjp(lax_convolution, x, weight)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for a, b in zip(our_vjp(y_bar), their_vjp(y_bar), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [1, 3])
def test_time_is_one_more_channel(size):
    layer = Convolution(2, 3, size, time=True, key=jax.random.key(2))
    x, t = jax.random.normal(jax.random.key(3), (2, 4, 5, 2)), jnp.array(0.7)

    def padded(layer, x, t):
        x = jnp.concatenate([x, jnp.full((*x.shape[:3], 1), t)], axis=-1)
        weight = jnp.concatenate([layer.weight, layer.time_weight], axis=2)
        y = jax.lax.conv_general_dilated(
            x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + jnp.broadcast_to(layer.bias, y.shape)

    np.testing.assert_allclose(layer(x, t), padded(layer, x, t), rtol=1e-12, atol=1e-12)

    def gradient(f):
        return jax.grad(lambda args: jnp.sum(jnp.sin(f(*args))))((layer, x, t))

    ours = gradient(lambda layer, x, t: layer(x, t))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(gradient(padded)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_convolutional_start_keeps_the_image():
    start = ConvolutionalStart(3, 7, 4, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (2, 4, 4, 3))
    h, m = start(x)
    assert h.shape == m.shape == (2, 4, 4, 7)
    np.testing.assert_array_equal(h[..., :3], x)


def block(family):
    n = 2
    keys = jax.random.split(jax.random.key(4), 3)
    field = DenseField(Dense((field_inputs(family, n), 5, n), jnp.tanh, key=keys[0]))
    start = None
    if is_second_order(family):
        velocity = Dense((2, n), jnp.tanh, key=keys[1])
        start = eqx.nn.Lambda(lambda x: (x, velocity(x)))
    return OdeBlock(make_dynamics(family, field, augment=0), start, Linear(n, 1, key=keys[2]))


@pytest.mark.parametrize("name", ["NODE", "SONODE", "GHBNODE"])
def test_block_reads_the_end_of_its_trajectory(name):
    model, x = block(FAMILIES[name]), jax.random.normal(jax.random.key(5), (3, 2))
    outputs, passed = model(x, TIGHT)
    path = model.trajectory(x, jnp.linspace(0.0, 1.0, 5), TIGHT)
    assert int(passed.failure) == 0 and int(passed.nfe) > 0
    assert path.shape == (5, 3, 2)
    np.testing.assert_array_equal(path[0], x)
    np.testing.assert_allclose(outputs, model.readout(path[-1]), atol=1e-7)


def test_block_says_why_it_failed():
    x = jnp.ones((1, 1))
    explosive = OdeBlock(NODE(lambda t, h, args: 3 * h**2), None, lambda h: h)
    _, passed = explosive(x, Method(1e-6, 1e-6, max_steps=30))
    assert FAILURES[int(passed.failure)] == "step limit reached"
    broken = OdeBlock(NODE(lambda t, h, args: jnp.nan * h), None, lambda h: h)
    _, passed = broken(x, Method(1e-6, 1e-6))
    assert FAILURES[int(passed.failure)] == "the field returned NaN or infinity"


SIZE, CHANNELS = 3, 2


def rnn(family=HBNODE, cell="sum", clip=0.0, field=None, linear_start=False):
    """A recurrent model of 3 numbers a part, and of 2 channels."""
    keys = jax.random.split(jax.random.key(6), 4)
    parts = 2 if is_second_order(family) else 1
    if field is None:
        field = DenseField(Dense((field_inputs(family, SIZE), 5, SIZE), jnp.tanh, key=keys[0]))
    cells: dict[str, Any] = {
        "sum": SumCell(CHANNELS, SIZE, parts, key=keys[1]),
        "dense": DenseCell(
            Dense((parts * SIZE + CHANNELS, 4, parts * SIZE), jnp.tanh, key=keys[1])
        ),
    }
    start = ZeroStart(SIZE, parts)
    if linear_start:
        start = LinearStart(Linear(4 * CHANNELS, parts * SIZE, key=keys[3]), SIZE, parts)
    readout = Linear(SIZE, CHANNELS, key=keys[2])
    return OdeRnn(make_dynamics(family, field), start, cells[cell], readout, clip=clip)


def sequences(batch=3, stamps=4):
    rng = np.random.default_rng(7)
    inputs = jnp.asarray(rng.normal(size=(batch, stamps, CHANNELS)))
    return inputs, jnp.asarray(rng.choice([0.25, 0.5, 1.5], size=(batch, stamps)))


def by_hand(model, inputs, gaps, method, more=()):
    """One sample, without batch, pace or scan: solves over its own gaps."""
    state = jax.tree.map(lambda y: y[0], model.start(inputs[None]))
    outputs = []
    for i, (x, gap) in enumerate(zip(inputs, gaps, strict=True)):
        parts = model.cell(state if isinstance(state, tuple) else (state,), x)
        begun = parts if isinstance(state, tuple) else parts[0]
        spans = [float(gap)] if i + 1 < len(gaps) else [float(gap), *map(float, more)]
        for span in spans:
            sol = method.solve(model.dynamics, begun, jnp.array([0.0, span]))
            state = jax.tree.map(lambda y: y[-1], sol.ys)
            outputs.append(model.readout(position(state)))
    return jnp.stack(outputs)


@pytest.mark.parametrize(
    ("name", "cell", "linear_start"),
    [("HBNODE", "sum", True), ("NODE", "dense", False), ("SONODE", "dense", True)],
)
def test_samples_go_at_their_own_pace(name, cell, linear_start):
    """A batch with irregular gaps is what each sample is alone; forecasts lengthen the last gap."""
    model = rnn(FAMILIES[name], cell, linear_start=linear_start)
    inputs, gaps = sequences()
    horizons = gaps[:, -1:] + jnp.array([[0.0, 0.5, 1.25]])
    sequence, passed = model(inputs, gaps, TIGHT, horizons=horizons)
    assert int(passed.failure) == 0
    assert sequence.forecasts is not None
    assert sequence.outputs.shape == (3, 4, 2) and sequence.forecasts.shape == (3, 3, 2)
    for i in range(len(inputs)):
        alone = by_hand(model, inputs[i], gaps[i], TIGHT, more=horizons[i, 1:])
        np.testing.assert_allclose(sequence.outputs[i], alone[:4], atol=1e-6)
        np.testing.assert_allclose(sequence.forecasts[i], alone[3:], atol=1e-6)


def test_gradients_of_the_recurrent_model():
    """Against finite differences, forecasts included."""
    model, (inputs, gaps) = rnn(linear_start=True), sequences()
    horizons = gaps[:, -1:] + jnp.array([[0.0, 0.5]])
    params, static = eqx.partition(model, eqx.is_inexact_array)
    direction = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=float)).reshape(x.shape),
                             params)  # fmt: skip

    @jax.jit
    def loss(epsilon):
        moved = jax.tree.map(lambda x, d: x + epsilon * d, params, direction)
        sequence, _ = eqx.combine(moved, static)(inputs, gaps, TIGHT, horizons=horizons)
        return jnp.sum(sequence.outputs**2) + jnp.sum(jnp.sin(sequence.forecasts))

    slope = jax.grad(loss)(0.0)
    np.testing.assert_allclose(slope, (loss(1e-4) - loss(-1e-4)) / 2e-4, rtol=1e-5)


@pytest.mark.parametrize("name", ["HBNODE", "NODE"])
def test_adjoint_norms(name):
    """Against the derivatives of the last output in the state before each cell, sample by
    sample."""
    model, (inputs, gaps) = rnn(FAMILIES[name], clip=0.01), sequences(batch=2, stamps=3)
    norms = jax.jit(lambda: model.adjoint_norms(inputs, gaps, TIGHT, jnp.sum))()

    def last(state, i, first):
        """The sum of the outputs at the end, from the state before the cell of stamp `first`."""
        for x, gap in zip(inputs[i, first:], gaps[i, first:], strict=True):
            parts = model.cell(state if isinstance(state, tuple) else (state,), x)
            begun = parts if isinstance(state, tuple) else parts[0]
            sol = TIGHT.solve(model.dynamics, begun, jnp.stack([0 * gap, gap]))
            state = jax.tree.map(lambda y: y[-1], sol.ys)
        return jnp.sum(model.readout(position(state)))

    states = [jax.tree.map(lambda y: y[0], model.start(inputs[:1]))] * 2
    derivative = jax.jit(jax.grad(last), static_argnums=(1, 2))
    for first in range(3):
        squares = 0.0
        for i in range(2):
            adjoint = derivative(states[i], i, first)
            squares += sum(float(jnp.sum(a**2)) for a in jax.tree.leaves(adjoint))
            parts = states[i] if isinstance(states[i], tuple) else (states[i],)
            begun = model.cell(parts, inputs[i, first])
            begun = begun if isinstance(states[i], tuple) else begun[0]
            span = jnp.array([0.0, float(gaps[i, first])])
            sol = TIGHT.solve(model.dynamics, begun, span)
            states[i] = jax.tree.map(lambda y: y[-1], sol.ys)
        np.testing.assert_allclose(norms[first], squares**0.5, rtol=1e-6)


def test_clip_adjoint():
    """Per sample, over all parts of the state together; forward nothing changes."""
    state = (jnp.ones((3, 2)), jnp.zeros((3, 2)))
    adjoint = (jnp.array([[3.0, 0.0], [0.1, 0.2], [0.0, 0.0]]),
               jnp.array([[0.0, 4.0], [0.2, 0.0], [0.0, 0.0]]))  # fmt: skip
    same, pull = jax.vjp(lambda y: clip_adjoint(1.0, y), state)
    for a, b in zip(same, state, strict=True):
        np.testing.assert_array_equal(a, b)
    ((h_bar, m_bar),) = pull(adjoint)
    np.testing.assert_allclose(h_bar, [[0.6, 0.0], [0.1, 0.2], [0.0, 0.0]], rtol=1e-15)
    np.testing.assert_allclose(m_bar, [[0.0, 0.8], [0.2, 0.0], [0.0, 0.0]], rtol=1e-15)


def test_clip_limits_what_the_model_passes_on():
    """A limit that binds shortens the adjoint at the first stamp; a large one changes nothing."""
    inputs, gaps = sequences()

    def gradient(clip):
        def loss(y):
            model = eqx.tree_at(lambda m: m.start, rnn(clip=clip), lambda x: (y, y))
            return 100 * jnp.sum(model(inputs, gaps, Method(1e-6, 1e-6))[0].outputs)

        return jax.jit(jax.grad(loss))(jnp.zeros((3, SIZE)))

    free, loose, tight = gradient(0.0), gradient(1e9), gradient(0.5)
    np.testing.assert_allclose(free, loose, rtol=1e-12)
    # h and m start from one y: the sum of two parts of a vector no longer than 0.5
    assert (jnp.linalg.norm(tight, axis=1) <= 0.5 * 2**0.5 + 1e-12).all()
    assert (jnp.linalg.norm(free, axis=1) > 1).all()


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("gradient", [DiscreteAdjoint(), ContinuousAdjoint("full"), None])
def test_counts_of_a_pass(warm, gradient):
    """What a pass tells, forward and through the probe, is what the host saw."""
    calls = []
    net = Dense((SIZE, SIZE), jnp.tanh, key=jax.random.key(8))

    def field(t, h, args):
        # told of h, because what depends on t alone is moved out of the loop over the stamps
        jax.debug.callback(lambda h: calls.append(h), h)
        return jnp.tanh(net(h))

    solver = None if gradient is None else Dopri5()
    method = Method(1e-6, 1e-6, solver, gradient, warm_start=warm)
    model, (inputs, gaps) = rnn(HBNODE, field=field), sequences()
    horizons = gaps[:, -1:] + jnp.array([[0.0, 0.5]])

    def loss(inputs, probe):
        sequence, passed = model(inputs, gaps, method, horizons=horizons, probe=probe)
        return jnp.sum(sequence.outputs**2) + jnp.sum(sequence.forecasts), passed.nfe

    both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    (_, forward), (_, backward) = jax.block_until_ready(both(inputs, 0.0))
    jax.effects_barrier()
    assert forward > 0 and backward > 0
    assert len(calls) == int(forward) + int(backward)


def test_warm_start_saves_evaluations():
    model, (inputs, gaps) = rnn(), sequences(stamps=12)
    outputs, nfe = {}, {}
    for warm in (False, True):
        method = Method(1e-6, 1e-6, Dopri5(), warm_start=warm)
        sequence, passed = jax.jit(lambda method=method: model(inputs, gaps, method))()
        outputs[warm], nfe[warm] = sequence.outputs, int(passed.nfe)
    assert nfe[True] < nfe[False]
    np.testing.assert_allclose(outputs[True], outputs[False], atol=1e-4)


def test_recurrent_model_says_why_it_failed():
    model, (inputs, gaps) = rnn(NODE, field=lambda t, h, args: 1e3 * h**2 + 1), sequences()
    _, passed = model(inputs, gaps, Method(1e-6, 1e-6, max_steps=20))
    assert FAILURES[int(passed.failure)] in FAILURES[1:]

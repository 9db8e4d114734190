"""The experiments: their data, losses and arrays, on data made here."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from hbnode import HBNODE, NODE, DiscreteAdjoint
from hbnode.data import DataError
from hbnode.experiments import EXPERIMENTS, FAMILIES, build, preset
from hbnode.models import Method
from hbnode.solve import Dopri5
from hbnode.tasks import (
    AbstractTask,
    Descent,
    ImageClassification,
    PlaneVibration,
    PointCloud,
    Silverbox,
    Walker2D,
    descent,
    plane_vibration,
    silverbox,
    walker2d,
)
from hbnode.tasks.images import AbstractImages
from hbnode.tasks.point_cloud import cloud

METHOD = Method(1e-6, 1e-6, Dopri5(), DiscreteAdjoint())


def reference_flow(name, second_order):
    """The path of a landscape, by scipy."""
    landscape = descent.LANDSCAPES[name]
    gradient = jax.jit(jax.grad(landscape.function))

    def flow(t, y):
        force = -np.asarray(gradient(y[:2]))
        return np.concatenate([y[2:], force - landscape.gamma * y[2:]]) if second_order else force

    start = np.zeros(4 if second_order else 2)

    def solve(end):
        return solve_ivp(flow, (0, end), start, "LSODA", dense_output=True, rtol=1e-9, atol=1e-9)

    return landscape, solve


@pytest.mark.parametrize("family", [NODE, HBNODE])
def test_descent_paths(family):
    lines, arrays = Descent(family, long=8.0).run([0], Method(1e-9, 1e-9))
    for line in lines:
        landscape, solve = reference_flow(line["split"], family is HBNODE)
        name, steps = line["split"], round(landscape.end / landscape.step)
        assert line["nfe_forward"] == 7 * steps and line["failure"] == 0
        ts, path = arrays[f"{name}_ts"], arrays[f"{name}_path"]
        assert len(ts) == steps + 1 and ts[-1] == pytest.approx(landscape.end)
        exact = solve(8.0).sol
        np.testing.assert_allclose(path, exact(ts)[:2].T, atol=1e-6)
        distance = np.linalg.norm(path - np.array(landscape.minimum), axis=1)
        np.testing.assert_allclose(arrays[f"{name}_distance"], distance)
        assert line["distance"] == pytest.approx(distance[-1])
        assert line["loss"] == pytest.approx(float(landscape.function(path[-1])))
        far = np.linalg.norm(exact(np.linspace(0, 8, 20_001))[:2].T - landscape.minimum, axis=1)
        for near, first in zip(arrays["near"], arrays[f"{name}_first_passage"], strict=True):
            within = np.flatnonzero(far <= near)
            expected = np.linspace(0, 8, 20_001)[within[0]] if within.size else np.inf
            assert first == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("model", FAMILIES)
def test_silverbox_norms(monkeypatch, model):
    """Against scipy with the signal interpolated by numpy."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(9, 2)) / 100
    monkeypatch.setattr(silverbox, "load_silverbox", lambda: data)
    n = 2 if model == "ANODE" else 1
    task = Silverbox(FAMILIES[model], n, 3, end=4, scale=100.0)
    lines, arrays = task.run([0, 5], Method(1e-8, 1e-8))
    signal = 100 * data[:5]
    np.testing.assert_array_equal(arrays["signal"], signal)
    made = silverbox.UntrainedModel(
        FAMILIES[model], n, 3, jnp.array(signal[:, 0]), jax.random.key(5)
    )
    weight, bias = (np.asarray(x) for x in (made.layer.weight, made.layer.bias))
    x = jnp.array(signal[0, 1:])
    start = [x] if made.velocity is None else [x, made.velocity(x)]
    start = np.concatenate([np.ravel(part) for part in start])
    if model == "ANODE":
        start = np.concatenate([start, [0.0]])
    gamma, xi = (silverbox.GAMMA if "HB" in model else 0.0), np.log(2) if model[0] == "G" else 0.0
    gate = (lambda m: np.clip(m, -5, 5)) if model == "GHBNODE" else lambda m: m

    def rate(t, y):
        h, m = y[:n], y[n:]
        v1 = np.interp(t, np.arange(5), signal[:, 0])
        read = y if model == "SONODE" else h
        f = np.concatenate([read, [v1]]) @ weight + bias
        return f if m.size == 0 else np.concatenate([gate(m), f - gamma * m - xi * h])

    exact = solve_ivp(rate, (0, 4), start, t_eval=arrays["ts"], max_step=0.05, rtol=1e-9, atol=1e-9)
    norms = np.linalg.norm(exact.y[:n], axis=0)
    np.testing.assert_allclose(arrays["norms"][1], norms, rtol=1e-5, atol=1e-6)
    assert [line["seed"] for line in lines] == [0, 5]
    assert lines[1]["norm_end"] == arrays["norms"][1, -1]
    assert lines[1]["norm_max"] == arrays["norms"][1].max()


def test_clouds_are_uniform_in_area():
    points, targets = cloud(np.random.default_rng(0))
    assert points.shape == (120, 2) and (targets[:40] == -1).all() and (targets[40:] == 1).all()
    radius = np.concatenate(
        [np.linalg.norm(cloud(np.random.default_rng(s))[0], axis=1)[None] for s in range(200)]
    )
    disc, ring = radius[:, :40] ** 2, radius[:, 40:] ** 2
    assert disc.max() < 0.25 and ring.min() > 0.85**2 and ring.max() < 1
    # the squares of the radii are uniform: mean and deviation
    for squares, low, high in ((disc, 0, 0.25), (ring, 0.85**2, 1.0)):
        assert squares.mean() == pytest.approx((low + high) / 2, rel=0.01)
        assert squares.std() == pytest.approx((high - low) / 12**0.5, rel=0.03)


def test_point_cloud_tells_what_an_error_costs():
    task = PointCloud(HBNODE, 2, 5)
    model, data = task.model(jax.random.key(0)), jax.tree.map(jnp.asarray, task.data(0))
    assert not np.array_equal(data["train"][0], data["test"][0])
    np.testing.assert_array_equal(data["train"][0], data["full"][0])
    close = jax.jit(lambda: task.closing(model, (), data, METHOD))
    told = jax.tree.map(np.asarray, close())
    assert (np.diff(told["nfe_forward"]) >= 0).all() and (np.diff(told["nfe_backward"]) >= 0).all()
    assert told["nfe_forward"][-1] > 2 * told["nfe_forward"][0]
    assert (told["error"] < 20 * told["tolerance"]).all() and told["error"][-1] < 1e-7
    at = dataclasses.replace(METHOD, rtol=1e-5, atol=1e-5)
    _, outcome = task.loss(model, data["full"], at)
    assert told["nfe_forward"][2] == outcome.passed.nfe
    exact = model.trajectory(data["full"][0], jnp.array([0.0, 1.0]), Method(1e-11, 1e-11))
    rough = model.trajectory(data["full"][0], jnp.array([0.0, 1.0]), at)
    error = np.sqrt(np.mean((rough - exact)[-1] ** 2))
    assert told["error"][2] == pytest.approx(error, rel=1e-3)


class Stripes(AbstractImages):
    """Made-up images, all different."""

    shape = (4, 6, 3)

    def load(self):
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (60, 4, 6, 3), dtype=np.uint8)
        labels = rng.integers(0, 10, 60).astype(np.uint8)
        return images[:40], labels[:40], images[40:], labels[40:]


def images(**more):
    sizes = dict(n=4, h=3, train=15, validation=10, test=12)
    return ImageClassification(Stripes(), HBNODE, **{**sizes, **more})


def test_images_are_shared_and_rows_differ_by_seed():
    task = images()
    shared, rows = task.shared(), task.data(0)
    assert {k: len(v) for k, v in rows.items()} == {"train": 15, "validation": 10, "test": 12}
    assert len(np.unique(np.concatenate([rows["train"], rows["validation"]]))) == 25
    assert rows["train"].max() < 40 <= rows["test"].min()
    assert not np.array_equal(rows["train"], task.data(1)["train"])
    train, _, test, test_labels = Stripes().load()
    pixels, labels = task.gather(shared, rows["test"])
    scale = train.mean(dtype=np.float64), train.std(dtype=np.float64)
    expected = (test[rows["test"] - 40].astype(float) - scale[0]) / scale[1]
    np.testing.assert_allclose(pixels, expected, rtol=1e-6)
    np.testing.assert_array_equal(labels, test_labels[rows["test"] - 40])


def test_images_shrink_by_means():
    shared = images(shrink=2).shared()
    train = Stripes().load()[0].astype(float)
    means = train[:, ::2, ::2] + train[:, 1::2, ::2] + train[:, ::2, 1::2] + train[:, 1::2, 1::2]
    np.testing.assert_allclose(shared["images"][:40], means / 4, atol=0.51)
    assert shared["images"].shape == (60, 2, 3, 3)
    with pytest.raises(ValueError, match=r"data\.shrink must divide the size 4 × 6.*got 4"):
        images(shrink=4).shared()


def test_too_many_images():
    with pytest.raises(ValueError, match=r"data\.train asks for 99 images, and there are 20"):
        images(train=99).data(0)


@jax.numpy_dtype_promotion("standard")  # for optax
def test_images_loss_and_tolerances():
    """Cross-entropy and accuracy of the logits; more evaluations at a smaller tolerance."""
    task = images(tolerances=(1e-2, 1e-5))
    model = task.model(jax.random.key(0))
    shared = jax.tree.map(jnp.asarray, task.shared())
    data = jax.tree.map(jnp.asarray, task.data(0))
    batch = task.gather(shared, data["test"])
    batch = (batch[0].astype(float), batch[1])
    loss, outcome = task.loss(model, batch, METHOD)
    logits, _ = model(batch[0], METHOD)
    likelihoods = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.asarray(batch[1])
    assert loss == pytest.approx(-np.log(likelihoods[np.arange(12), labels]).mean())
    assert outcome.measures["accuracy"] == np.mean(likelihoods.argmax(axis=1) == labels)
    told = jax.jit(lambda: task.closing(model, shared, data, METHOD))()
    assert told["nfe_forward"][0] < told["nfe_forward"][1]
    assert told["nfe_backward"][0] < told["nfe_backward"][1]


def recurrent_data(task, seed=0):
    data = task.data(seed)
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x, float)[:2]), data["train"]), data


def test_plane_vibration_loss(monkeypatch):
    """Mean square of the forecast + 0.1 · that of each output against the next stamp."""
    series = np.random.default_rng(0).normal(size=(2000, 5)).cumsum(axis=0)
    monkeypatch.setattr(plane_vibration, "_series", lambda: series)
    task = PlaneVibration(HBNODE, 3, 4, 4, clip=1.0)
    batch, data = recurrent_data(task)
    assert set(data) == {"train", "validation", "test"}
    model = task.model(jax.random.key(0))
    loss, outcome = jax.jit(lambda: task.loss(model, batch, METHOD))()
    sequence, _ = jax.jit(
        lambda: model(batch["inputs"], batch["gaps"], METHOD, horizons=batch["horizons"])
    )()
    forecast = np.mean((sequence.forecasts - batch["forecast"]) ** 2)
    one_step = np.mean((sequence.outputs - batch["targets"]) ** 2)
    assert sequence.forecasts.shape == (2, 8, 5) and sequence.outputs.shape == (2, 64, 5)
    assert loss == pytest.approx(forecast + 0.1 * one_step)
    assert outcome.measures["forecast_mse"] == pytest.approx(forecast)
    assert outcome.measures["one_step_mse"] == pytest.approx(one_step)


def test_walker2d_loss(monkeypatch):
    """Mean square of each output against the next sample."""
    rng = np.random.default_rng(0)
    rollouts = [rng.normal(size=(200, 17)) for _ in range(8)]
    monkeypatch.setattr(walker2d, "_rollouts", lambda: rollouts)
    task = Walker2D(NODE, 3, 4, 4, clip=1.0, drop=0.1, train=4, validation=2, test=2)
    batch, data = recurrent_data(task)
    assert [len(data[s]["inputs"]) for s in ("train", "validation", "test")] == [4, 2, 2]
    model = task.model(jax.random.key(0))
    loss, _ = jax.jit(lambda: task.loss(model, batch, METHOD))()
    sequence, _ = jax.jit(lambda: model(batch["inputs"], batch["gaps"], METHOD))()
    assert loss == pytest.approx(np.mean((sequence.outputs - batch["targets"]) ** 2))
    # the target of a stamp is the next input
    np.testing.assert_array_equal(batch["targets"][:, :-1], batch["inputs"][:, 1:])


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_every_preset_builds(task):
    experiment = EXPERIMENTS[task]
    for model in (*experiment.models, *experiment.others):
        for name in ("quick", "paper"):
            for method in ("paper", "fast"):
                assert build(task, model, preset(task, model, name, method))


@pytest.mark.parametrize("task", ["mnist", "cifar10", "plane-vibration", "walker2d"])
def test_quick_presets_find_their_real_data(monkeypatch, task):
    """As many samples as they ask for."""
    if not os.environ.get("HBNODE_DATA_DIR"):
        pytest.skip("HBNODE_DATA_DIR is not set, so that there are no real data to test with")
    monkeypatch.setenv("HBNODE_OFFLINE", "1")
    settings = preset(task, "HBNODE", "quick", "paper")
    made = build(task, "HBNODE", settings)
    assert isinstance(made, AbstractTask)
    try:
        data = made.data(0)
    except DataError as error:
        pytest.skip(str(error))
    assert set(data) == {"train", "validation", "test"}
    for split, rows in data.items():
        count = len(jax.tree.leaves(rows)[0])
        assert count == getattr(settings.data, split, count) > 0
    settings.training.updates(len(jax.tree.leaves(data["train"])[0]))

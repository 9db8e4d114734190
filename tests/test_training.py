"""Training: what an update does, many seeds at once, divergence, interruption, resuming."""

import dataclasses
import json
import sys
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hbnode import NODE, DiscreteAdjoint
from hbnode.models import Dense, DenseField, Method, OdeBlock
from hbnode.runs import RunError, RunFolder
from hbnode.solve import Dopri5
from hbnode.summary import summarise
from hbnode.tasks import AbstractTask
from hbnode.tasks.base import Outcome
from hbnode.training import Interrupted, TrainingSettings, fit
from hbnode.training.program import make_programs
from hbnode.training.seeds import Seeds

fit_module = sys.modules[fit.__module__]  # `hbnode.training.fit` is the function

METHOD = Method(1e-5, 1e-5, Dopri5(), DiscreteAdjoint(), max_steps=200)
SAMPLES = 12
SETTINGS = TrainingSettings(
    epochs=4.0, batch=5, learning_rate=0.02, evaluate_every=2.0, evaluation_batch=4
)


@pytest.fixture(autouse=True)
def _as_the_command_line_does():
    """optax promotes dtypes."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(autouse=True, scope="module")
def _compile_once(tmp_path_factory):
    """The same programs are asked for again and again."""
    options = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@dataclasses.dataclass(frozen=True)
class Turn(AbstractTask):
    """Points are to be turned by a right angle. Beside its loss a batch tells which samples it
    has: Σ 2ⁱ.

    `faults`: what is wrong with the data of a seed. `tell`: whether the host is told of every
    evaluation.
    """

    faults: dict[int, str] = dataclasses.field(default_factory=dict)
    tell: bool = False
    calls: ClassVar[list] = []
    traces: ClassVar[list] = []

    def data(self, seed):
        rng = np.random.default_rng(seed)
        splits = {}
        for name, count in {"train": SAMPLES, "test": 6}.items():
            x = rng.normal(size=(count, 2))
            y = np.stack([-x[:, 1], x[:, 0]], axis=1)
            if name == "train":
                fault = self.faults.get(seed)
                x = x * {"infinite": np.inf, "steep": 1e4}.get(fault or "", 1.0)
                y = y * {"nan": np.nan, "far": 1e5}.get(fault or "", 1.0)
            splits[name] = {"x": x, "y": y, "bit": 2.0 ** np.arange(count)}
        return splits

    def model(self, key):
        field = DenseField(Dense((2, 4, 2), jnp.tanh, key=key))
        return OdeBlock(NODE(Cubed(field, self.calls if self.tell else None)), None, lambda h: h)

    def loss(self, model, batch, method, probe=None):
        self.traces.append(None)
        out, passed = model(batch["x"], method, probe)
        loss = jnp.mean((out - batch["y"]) ** 2)
        return loss, Outcome({"samples": jnp.sum(batch["bit"])}, passed)

    def snapshot(self, model, shared, data, method):
        return {"end": model(data["test"]["x"], method)[0]}

    def closing(self, model, shared, data, method):
        return {"last": model(data["test"]["x"], method)[0]}

    def context(self, data):
        return {"points": data["test"]["x"]}


class Cubed(eqx.Module):
    field: DenseField
    calls: list | None = eqx.field(static=True)

    def __call__(self, t, h, args):
        if self.calls is not None:
            jax.debug.callback(lambda h: Turn.calls.append(h), h)
        return self.field(t, h, args) + 1e-5 * h**3


def train(path, task=None, seeds=(0, 1, 2), settings=SETTINGS, resume=False, **more):
    with RunFolder(path, {"settings": str(settings)}, resume=resume) as folder:
        return fit(task or Turn(), dataclasses.replace(settings, **more), METHOD, list(seeds),
                   folder, "turn")  # fmt: skip


def metrics(path, times=False):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return lines if times else [{k: v for k, v in x.items() if k != "seconds"} for x in lines]


def alike(a: list[dict], b: list[dict]) -> None:
    """The same lines: counts exactly, the rest up to what a compiler does to a loop of one turn."""
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name, value in x.items():
            rough = name in ("loss", "samples")
            assert value == (pytest.approx(y[name], rel=1e-9) if rough else y[name]), name


def history(path):
    with np.load(path / "history.npz") as file:
        return dict(file)


def test_updates_are_adam_on_whole_batches(tmp_path):
    """With one batch an epoch: against a loop of the test's own."""
    train(tmp_path, seeds=[3], batch=SAMPLES, epochs=5.0)
    task = Turn()
    model = task.model(jax.random.fold_in(jax.random.key(3), 0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    batch = jax.tree.map(jnp.asarray, task.data(3)["train"])
    optimiser = optax.adam(SETTINGS.learning_rate)
    state, losses = optimiser.init(params), []

    @jax.jit
    def value_and_grad(params):
        return jax.value_and_grad(
            lambda p: task.loss(eqx.combine(p, static), batch, METHOD)[0]
        )(params)  # fmt: skip

    for _ in range(5):
        value, grads = value_and_grad(params)
        changes, state = optimiser.update(grads, state)
        params = optax.apply_updates(params, changes)
        losses.append(float(value))
    np.testing.assert_allclose(history(tmp_path)["loss"][0], losses, rtol=1e-10)
    assert losses[-1] < losses[0]


def test_each_epoch_is_a_new_order_of_all_samples(tmp_path):
    train(tmp_path, seeds=[0, 1], batch=4, epochs=6.0)
    told = history(tmp_path)["samples"].astype(int)
    assert told.shape == (2, 18)
    for epochs in told.reshape(2, 6, 3):
        assert (epochs.sum(axis=1) == 2**SAMPLES - 1).all()  # every sample, once
        assert all(int(batch).bit_count() == 4 for batch in epochs.ravel())
        assert len({tuple(epoch) for epoch in epochs}) == 6
    assert (told[0] != told[1]).any()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three seeds."""
    path = tmp_path_factory.mktemp("whole")
    with jax.numpy_dtype_promotion("standard"):
        train(path)
    return path


def test_metrics_of_every_seed_split_and_evaluation(whole):
    summary = json.loads((whole / "summary.json").read_text())
    lines, kept = metrics(whole, times=True), history(whole)
    assert {(x["seed"], x["step"], x["split"]) for x in lines} == {
        *((seed, 0, "test") for seed in range(3)),
        *((s, step, split) for s in range(3) for step in (4, 8) for split in ("train", "test")),
    }
    for x in lines:
        assert x["nfe_forward"] > 0 and x["epoch"] == x["step"] / 2
        assert (x["nfe_backward"] > 0) == (x["split"] == "train")
        if x["split"] == "train":
            since = slice(x["step"] - 4, x["step"])
            np.testing.assert_allclose(x["loss"], kept["loss"][x["seed"], since].mean())
    assert summary["updates"] == 8 and summary["parameters"] == 22 and not summary["diverged"]
    assert all(0 < x["seconds"] <= summary["seconds"] for x in lines if x["step"] > 0)
    last = [x["loss"] for x in lines if x["step"] == 8 and x["split"] == "test"]
    final = summary["splits"]["test"]["loss"]["final"]
    np.testing.assert_allclose([final["mean"], final["std"]], [np.mean(last), np.std(last, ddof=1)])


def test_an_evaluation_is_the_mean_over_all_samples(whole):
    """Six samples in batches of four: the rest weighs less."""
    task = Turn()
    model = task.model(jax.random.fold_in(jax.random.key(2), 0))
    rows = jax.tree.map(jnp.asarray, task.data(2)["test"])
    parts = [
        task.loss(model, jax.tree.map(lambda x, s=s: x[s], rows), METHOD)
        for s in (slice(4), slice(4, 6))
    ]
    first = next(x for x in metrics(whole) if x["step"] == 0 and x["seed"] == 2)
    nfe = [int(outcome.passed.nfe) for _, outcome in parts]
    np.testing.assert_allclose(first["loss"], (4 * parts[0][0] + 2 * parts[1][0]) / 6, rtol=1e-12)
    np.testing.assert_allclose(first["nfe_forward"], (4 * nfe[0] + 2 * nfe[1]) / 6)


def test_counts_are_those_of_the_host():
    task = Turn(tell=True)
    programs = make_programs(task, SETTINGS, METHOD, SAMPLES, 5, jnp.zeros(()).dtype)
    key, data = jax.random.key(0), jax.tree.map(jnp.asarray, task.data(0))
    state = programs.start(key, jnp.array(False))
    Turn.calls.clear()
    _, told = jax.jit(programs.train)(state, key, data, (), jnp.array(0), jnp.array(5))
    counts = told["nfe_forward"] + told["nfe_backward"]
    jax.effects_barrier()
    assert len(Turn.calls) == counts.sum() > 100


def test_a_seed_is_the_same_among_others_and_alone(whole, tmp_path):
    train(tmp_path, seeds=[1])
    alike([x for x in metrics(whole) if x["seed"] == 1], metrics(tmp_path))


def test_seeds_are_shared_out_among_the_devices():
    assert len(jax.devices()) >= 2  # what conftest asks for, and the command line too
    seeds = Seeds([5, 6, 7], jax.devices()[:2])
    assert seeds.filled.tolist() == [5, 6, 7, 7] and seeds.spare.tolist() == [False] * 3 + [True]
    x = seeds.place(np.arange(4.0))
    assert {s.device for s in x.addressable_shards} == set(jax.devices()[:2])
    double = jax.jit(seeds.map(lambda x, c: c * x, (True, False)))
    np.testing.assert_array_equal(seeds.gather(double(x, jnp.array(2.0))), [0, 2, 4])


REASONS = {
    "nan": "the loss is not finite",
    "far": "the loss exploded",
    "infinite": "the field returned NaN or infinity",
    "steep": "step size underflow",
}


def test_a_seed_that_diverges_is_told_and_the_others_go_on(whole, tmp_path, capsys):
    faults = dict(zip((1, 2, 4, 5), REASONS, strict=True))
    summary = train(tmp_path / "all", Turn(faults), seeds=range(6))
    told = capsys.readouterr().err
    for seed, fault in faults.items():
        assert summary["diverged"][str(seed)] == {"step": 1, "reason": REASONS[fault]}
        assert f"seed {seed} diverged at update 1: {REASONS[fault]}" in told
        lines = [x for x in metrics(tmp_path / "all") if x["seed"] == seed and x["step"] > 0]
        assert [(x["step"], x["split"], x["diverged"]) for x in lines] == [
            (1, "train", REASONS[fault])
        ]
    assert summary["diverged"].keys() == {str(seed) for seed in faults}
    alike(*([x for x in metrics(path) if x["seed"] == 0] for path in (tmp_path / "all", whole)))
    final = summary["splits"]["test"]["loss"]["final"]
    assert final["seeds"].keys() == {"0", "3"} and np.isfinite(final["mean"])


def test_nothing_is_left_to_do_when_all_diverged(tmp_path):
    summary = train(tmp_path, Turn({0: "nan", 1: "nan"}), seeds=[0, 1], epochs=1000.0)
    assert set(summary["diverged"]) == {"0", "1"}
    kept = history(tmp_path)["nfe_forward"]
    assert np.isfinite(kept[:, 0]).all() and np.isnan(kept[:, 1:]).all()


class Stop:
    """In the place of the listener for Ctrl-C: pressed at the n-th look."""

    def __init__(self, after: int):
        self.after, self.looks = after, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @property
    def pressed(self):
        self.looks += 1
        return self.looks > self.after


ARRAYS = ("history.npz", "snapshots.npz", "closing.npz", "context.npz")


def test_interrupted_anywhere_it_goes_on_to_the_same(tmp_path, monkeypatch):
    """One update a call, stopped before each of them."""
    monkeypatch.setattr(fit_module, "CALL_SECONDS", 0.0)
    faults = {1: "far"}
    train(tmp_path / "whole", Turn(faults), epochs=3.0, evaluate_every=0.5)
    stops = 0
    with monkeypatch.context() as patch:
        patch.setattr(fit_module, "_CtrlC", lambda: Stop(1))
        for _ in range(20):
            try:
                train(tmp_path / "parts", Turn(faults), epochs=3.0, evaluate_every=0.5,
                      resume=stops > 0)  # fmt: skip
                break
            except Interrupted:
                stops += 1
    assert stops >= 5
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    for name in ARRAYS:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    whole, parts = (json.loads((tmp_path / p / "summary.json").read_text()) for p in
                    ("whole", "parts"))  # fmt: skip
    for summary in (whole, parts):
        for name in ("seconds", "seconds_per_update", "compile_seconds"):
            assert summary.pop(name) > 0
    assert whole == parts


def test_a_checkpoint_between_two_evaluations(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_module, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(fit_module, "CHECKPOINT_SECONDS", 0.0)
    saved = []
    save = RunFolder.save_checkpoint
    monkeypatch.setattr(
        RunFolder, "save_checkpoint",
        lambda self, arrays, told: (saved.append(told["step"]), save(self, arrays, told)),
    )  # fmt: skip
    train(tmp_path, epochs=3.0)
    assert set(saved) == set(range(7))


def test_the_loss_is_traced_a_fixed_number_of_times(tmp_path):
    counts = []
    for epochs in (1.0, 30.0):
        Turn.traces.clear()
        train(tmp_path / str(epochs), epochs=epochs)
        counts.append(len(Turn.traces))
    assert 0 < counts[0] == counts[1] <= 6


def test_arrays_for_figures(whole):
    with np.load(whole / "snapshots.npz") as file:
        assert file["steps"].tolist() == [0, 4, 8]
        assert file["end"].shape == (3, 3, 6, 2)  # of three seeds, at three evaluations
        end = file["end"]
    with np.load(whole / "closing.npz") as file:
        assert file["last"].shape == (3, 6, 2)
        np.testing.assert_allclose(file["last"], end[:, -1], rtol=1e-12)
    with np.load(whole / "context.npz") as file:
        np.testing.assert_array_equal(file["points"][1], Turn().data(1)["test"]["x"])


def test_float32(tmp_path):
    with jax.enable_x64(False):
        train(tmp_path, epochs=1.0)
    assert history(tmp_path)["loss"].dtype == np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(batch=13), r"training\.batch is 13, and there are only 12"),
        (dict(epochs=0.0), r"training\.epochs must be positive, got 0"),
        (dict(learning_rate=float("nan")), r"training\.learning_rate must be positive, got nan"),
    ],
)
def test_settings_that_do_not_go_together(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **change)


def test_resuming_a_damaged_checkpoint_says_what_to_do(tmp_path):
    train(tmp_path, epochs=1.0)
    (tmp_path / "checkpoint" / "latest.npz").write_bytes(b"PK")
    with pytest.raises(RunError, match="damaged"):
        train(tmp_path, epochs=1.0, resume=True)


def test_summary_of_lines():
    def line(seed, step, split="test", **more) -> dict[str, Any]:
        return dict(seed=seed, step=step, epoch=step, split=split, seconds=1.0, **more)

    lines = [
        line(0, 1, loss=3.0, accuracy=0.5), line(0, 2, loss=1.0, accuracy=0.9),
        line(0, 3, loss=2.0, accuracy=0.8), line(1, 3, loss=4.0, accuracy=0.6),
        line(2, 1, loss=9.0, accuracy=0.1), line(2, 2, "train", loss=None, diverged="the reason"),
    ]  # fmt: skip
    summary = summarise(lines, [0, 1, 2])
    assert summary["diverged"] == {"2": {"step": 2, "reason": "the reason"}}
    test = summary["splits"]["test"]
    assert test["loss"]["final"]["seeds"] == {"0": 2.0, "1": 4.0}
    assert test["loss"]["final"]["mean"] == 3.0
    assert test["loss"]["final"]["std"] == pytest.approx(2**0.5)
    assert test["loss"]["best"]["seeds"] == {"0": 1.0, "1": 4.0}
    assert test["accuracy"]["best"]["seeds"] == {"0": 0.9, "1": 0.6}

"""Training of many seeds from the first update to the summary, interruptions allowed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..models import Method, count_parameters
from ..runs import RunFolder
from ..summary import summarise
from ..tasks.base import AbstractTask
from .program import REASONS, make_programs
from .progress import Progress
from .seeds import Seeds
from .settings import TrainingSettings

CALL_SECONDS = 2.0  # how long one call of the compiled program should take
CHECKPOINT_SECONDS = 30.0
SNAPSHOT_SEEDS = 3  # of so many seeds the snapshots are kept


class Interrupted(Exception):
    """Ctrl-C, after everything was saved."""


def fit(
    task: AbstractTask,
    settings: TrainingSettings,
    method: Method,
    seeds: Sequence[int],
    folder: RunFolder,
    title: str,
) -> dict[str, Any]:
    """Trains and evaluates a model for each of the seeds, and returns the summary of the run.

    Continues from the checkpoint in the folder if there is one.
    """
    return _Fit(task, settings, method, seeds, folder, title).run()


class _Fit:
    """The state of training on the host, between calls of the compiled programs."""

    def __init__(self, task, settings, method, seeds, folder, title):
        self.settings, self.folder, self.title = settings, folder, title
        self.dtype = jnp.zeros(()).dtype
        self.seeds = Seeds(seeds)
        data = [_cast(task.data(int(seed)), self.dtype) for seed in self.seeds.filled]
        samples = len(jax.tree.leaves(data[0]["train"])[0])
        self.per_epoch = settings.updates_per_epoch(samples)
        self.updates, self.interval = settings.updates(samples), settings.interval(samples)
        self.longest = min(self.updates, self.interval)
        self.context = [task.context(data[i]) for i in range(min(len(seeds), SNAPSHOT_SEEDS))]
        self.data = self.seeds.place(jax.tree.map(lambda *x: np.stack(x), *data))
        self.shared = self.seeds.place(_cast(task.shared(), self.dtype), common=True)
        keys = jax.vmap(jax.random.key)(self.seeds.filled)
        self.keys = self.seeds.place(keys)
        self.parameters = count_parameters(task.model(jax.random.key(0)))
        self._compile(make_programs(task, settings, method, samples, self.longest, self.dtype))
        self.history: dict[str, np.ndarray] = {}
        self.lines: list[dict] = []
        self.snapshots: list[tuple[int, dict]] = []
        self.step, self.evaluated, self.seconds = 0, -1, 0.0
        self.count = 1  # updates in the next call, so that it takes about CALL_SECONDS
        self.saved = time.monotonic()

    def _compile(self, programs):
        began = time.perf_counter()
        each, number = self.seeds.map, jnp.zeros((), int)
        start = jax.jit(each(programs.start, (True, True)))
        self.state = start(self.keys, self.seeds.place(self.seeds.spare))
        self.train = (
            jax.jit(each(programs.train, (True, True, True, False, False, False)))
            .lower(self.state, self.keys, self.data, self.shared, number, number)
            .compile()
        )
        few = (True, True, False)
        lowered = jax.jit(each(programs.evaluate, few)).lower(self.state, self.data, self.shared)
        self.evaluate = lowered.compile()
        self.close = jax.jit(each(programs.close, few))
        self.compile_seconds = time.perf_counter() - began

    def run(self) -> dict[str, Any]:
        resumed = self._resume()
        progress = Progress(self.title, self.updates, self.per_epoch, self.step)
        if resumed:
            progress.say(f"going on from update {self.step}")
        try:
            with _CtrlC() as ctrl_c:
                while True:
                    if self.evaluated < self.step and self._at_evaluation():
                        self._evaluate()
                        self._save()
                    if self.step >= self.updates or self._all_diverged():
                        break
                    if ctrl_c.pressed:
                        self._save()
                        raise Interrupted
                    self._train(progress)
                    if time.monotonic() - self.saved > CHECKPOINT_SECONDS:
                        self._save()
                summary = self._finish()
                if ctrl_c.pressed:
                    raise Interrupted
                return summary
        finally:
            progress.close()

    def _at_evaluation(self) -> bool:
        return self.step % self.interval == 0 or self.step == self.updates or self._all_diverged()

    def _failures(self) -> np.ndarray:
        return self.seeds.gather(self.state.failure)

    def _all_diverged(self) -> bool:
        return bool((self._failures() > 0).all())

    def _train(self, progress: Progress) -> None:
        boundary = min((self.step // self.interval + 1) * self.interval, self.updates)
        count = min(self.count, boundary - self.step)
        before = self._failures()
        began = time.perf_counter()
        state, told = self.train(
            self.state, self.keys, self.data, self.shared, jnp.array(self.step), jnp.array(count)
        )
        told = self.seeds.gather(told)
        took = time.perf_counter() - began
        self.state = state
        for name, values in told.items():
            if name not in self.history:
                shape = (len(self.seeds.seeds), self.updates)
                self.history[name] = np.full(shape, np.nan, values.dtype)
            self.history[name][:, self.step : self.step + count] = values[:, :count]
        self.step, self.seconds = self.step + count, self.seconds + took
        if self._all_diverged():  # however many updates were asked for
            self.step = int(self.seeds.gather(self.state.failed_at).max())
        self.count = max(1, min(2 * count, round(count * CALL_SECONDS / max(took, 1e-6))))
        self._tell_divergence(before, progress)
        last = {name: _mean(values[:, count - 1]) for name, values in told.items()}
        progress.update(self.step, last["loss"], last["nfe_forward"], last["nfe_backward"])

    def _tell_divergence(self, before: np.ndarray, progress: Progress) -> None:
        failures, steps = self._failures(), self.seeds.gather(self.state.failed_at)
        for i in np.flatnonzero((failures > 0) & (before == 0)):
            reason = REASONS[failures[i]]
            progress.say(f"seed {self.seeds.seeds[i]} diverged at update {steps[i]}: {reason}")

    def _line(self, i: int, step: int, split: str, told: dict, **more: Any) -> None:
        backward = {"nfe_backward": 0.0} | told  # an evaluation has no backward pass
        self.lines.append(
            {"seed": self.seeds.seeds[i], "step": step, "epoch": step / self.per_epoch,
             "split": split, **backward, "seconds": self.seconds, **more}
        )  # fmt: skip

    def _evaluate(self) -> None:
        told, snapshot = self.seeds.gather(self.evaluate(self.state, self.data, self.shared))
        since = max(0, (self.step - 1) // self.interval * self.interval)
        failures, steps = self._failures(), self.seeds.gather(self.state.failed_at)
        for i in np.flatnonzero((failures > 0) & (steps > since)).tolist():
            at = int(steps[i])
            last = {name: x[i, at - 1] for name, x in self.history.items()}
            self._line(i, at, "train", last, diverged=REASONS[failures[i]])
        for i in np.flatnonzero(failures == 0).tolist():
            if self.step > 0:
                means = {name: x[i, since : self.step].mean() for name, x in self.history.items()}
                self._line(i, self.step, "train", means)
            for split, measures in told.items():
                self._line(i, self.step, split, {name: x[i] for name, x in measures.items()})
        few = {name: x[:SNAPSHOT_SEEDS] for name, x in snapshot.items()}
        self.snapshots.append((self.step, few))
        self.evaluated = self.step
        self.folder.write_metrics(self.lines)
        if self.snapshots[0][1]:
            self.folder.write_arrays("snapshots.npz", self._stacked_snapshots())

    def _stacked_snapshots(self) -> dict[str, np.ndarray]:
        arrays = {
            name: np.stack([snapshot[name] for _, snapshot in self.snapshots], axis=1)
            for name in self.snapshots[0][1]
        }
        return {"steps": np.array([step for step, _ in self.snapshots]), **arrays}

    def _finish(self) -> dict[str, Any]:
        closing = self.seeds.gather(self.close(self.state, self.data, self.shared))
        if closing:
            self.folder.write_arrays("closing.npz", closing)
        if self.context[0]:
            stacked = {name: np.stack([c[name] for c in self.context]) for name in self.context[0]}
            self.folder.write_arrays("context.npz", stacked)
        self.folder.write_arrays("history.npz", self.history)
        summary = summarise(self.lines, self.seeds.seeds)
        done = int(np.isfinite(self.history["nfe_forward"]).sum())
        summary |= {
            "parameters": self.parameters,
            "updates": self.updates,
            "seconds": self.seconds,
            "seconds_per_update": self.seconds / done,
            "compile_seconds": self.compile_seconds,
        }
        self.folder.write_json("summary.json", summary)
        return summary

    def _save(self) -> None:
        leaves = jax.tree.leaves(self.seeds.gather(self.state))
        arrays = {f"state/{i}": x for i, x in enumerate(leaves)}
        arrays |= {f"history/{name}": x for name, x in self.history.items()}
        if self.snapshots:
            stacked = self._stacked_snapshots()
            arrays |= {f"snapshots/{name}": x for name, x in stacked.items()}
        told = {
            "step": self.step, "evaluated": self.evaluated, "seconds": self.seconds,
            "lines": self.lines,
        }  # fmt: skip
        self.folder.save_checkpoint(arrays, told)
        self.saved = time.monotonic()

    def _resume(self) -> bool:
        found = self.folder.load_checkpoint()
        if found is None:
            return False
        arrays, told = found
        leaves, shape = jax.tree.flatten(self.state)
        restored = [  # the number of spare places depends on the machine
            np.concatenate([arrays[f"state/{i}"], np.asarray(leaf)[len(self.seeds.seeds) :]])
            for i, leaf in enumerate(leaves)
        ]
        self.state = self.seeds.place(jax.tree.unflatten(shape, restored))
        self.step, self.evaluated, self.seconds = told["step"], told["evaluated"], told["seconds"]
        self.lines = told["lines"]
        parts = {"history": {}, "snapshots": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            if part in parts:
                parts[part][rest] = array
        self.history = parts["history"]
        steps = parts["snapshots"].pop("steps", ())
        self.snapshots = [
            (int(step), {name: x[:, k] for name, x in parts["snapshots"].items()})
            for k, step in enumerate(steps)
        ]
        return True


class _CtrlC:
    """While this is open, the first Ctrl-C is noted only, so that nothing is saved half done; a
    second one ends everything at once."""

    def __init__(self):
        self.pressed = False
        self._listening = threading.current_thread() is threading.main_thread()

    def __enter__(self):
        if self._listening:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_):
        if self._listening:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_):
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def _cast(tree: Any, dtype) -> Any:
    """Floating-point arrays in the working precision."""

    def cast(x):
        x = np.asarray(x)
        return x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x

    return jax.tree.map(cast, tree)


def _mean(values: np.ndarray) -> float:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else float("nan")

"""What is measured: a task of the experiments with the paper's sizes, its model, and batches."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from hbnode.experiments import EXPERIMENTS, build, preset
from hbnode.models import Method, OdeRnn
from hbnode.tasks import AbstractTask, ImageClassification

TASKS = ("point-cloud", "plane-vibration", "walker2d", "mnist", "cifar10")
MODELS = ("HBNODE", "GHBNODE")


class Problem(NamedTuple):
    """All versions are made from this. `next_batch` draws another batch of the training set;
    `cold_seconds` is what compiling the update took for the first time."""

    name: str
    model_name: str
    task: Any
    model: Any
    batch: PyTree[jax.Array]
    next_batch: Callable[[], PyTree[jax.Array]]
    tolerance: float
    learning_rate: float
    dtype: Any
    cold_seconds: float = float("nan")

    @property
    def gated(self) -> bool:
        """Whether the family is the generalised one."""
        return self.model_name == "GHBNODE"

    @property
    def recurrent(self) -> bool:
        return isinstance(self.model, OdeRnn)

    @property
    def of_images(self) -> bool:
        return isinstance(self.task, ImageClassification)

    def cut(self, count: int) -> Problem:
        """The problem with the first samples of the batch alone."""
        return self._replace(batch=jax.tree.map(lambda x: x[:count], self.batch))

    def method(self, kind: str) -> Method:
        """The library's method `fast` or `paper` at the tolerance of the task."""
        return preset(self.name, self.model_name, "paper", kind).solver.method()


def precision(name: str) -> int:
    """32 or 64 bits, as the experiments have it."""
    return EXPERIMENTS[name].precision


def make_problem(name: str, model_name: str) -> Problem:
    """The problem with a freshly initialised model."""
    settings = _settings(name, model_name)
    task = build(name, model_name, settings)
    assert isinstance(task, AbstractTask)
    shared, rows = _data(name)
    dtype = jnp.float64 if precision(name) == 64 else jnp.float32
    rng = np.random.default_rng(0)
    count = jax.tree.leaves(rows)[0].shape[0]

    def cast(x):
        return x.astype(dtype) if eqx.is_inexact_array(x) else x

    def next_batch():
        mine = rng.choice(count, settings.training.batch, replace=False)
        batch = task.gather(shared, jax.tree.map(lambda x: jnp.asarray(x[mine]), rows))
        return jax.tree.map(cast, batch)

    model = jax.tree.map(cast, task.model(jax.random.key(0)))
    return Problem(
        name, model_name, task, model, next_batch(), next_batch, EXPERIMENTS[name].tolerance,
        settings.training.learning_rate, dtype,
    )  # fmt: skip


@functools.cache
def _data(name: str) -> tuple[Any, Any]:
    """What all seeds share, and the training set of seed 0."""
    task = build(name, MODELS[0], _settings(name, MODELS[0]))
    assert isinstance(task, AbstractTask)
    return jax.tree.map(jnp.asarray, task.shared()), task.data(0)["train"]


def _settings(name: str, model_name: str) -> Any:
    """The paper's, with fewer images where one file of them will do."""
    settings = preset(name, model_name, "paper", "fast")
    if name == "cifar10":
        images = dataclasses.replace(settings.data, train=5000, batches=(1,))
        settings = dataclasses.replace(settings, data=images)
    return settings

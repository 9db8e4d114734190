"""Walker2D (Figs. 4 and 9): one-step prediction of irregularly sampled walks."""

from __future__ import annotations

import dataclasses
import functools
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from ..data import Windows, load_walker2d, walker2d_windows
from ..dynamics import AbstractDynamics
from ..models import (
    Dense,
    DenseCell,
    DenseField,
    Linear,
    OdeRnn,
    ZeroStart,
    field_inputs,
    is_second_order,
    make_dynamics,
)
from .base import AbstractTask, Outcome

CHANNELS = 17


@final
@dataclasses.dataclass(frozen=True)
class Walker2D(AbstractTask):
    """Having seen the samples up to i, predict sample i + 1; mean squared error over all of them.

    **Arguments:** `family`: the class of the dynamics. `n`, `h1`, `h2`: sizes of the state and of
    the hidden layers of the cell. `clip`: the largest norm of the adjoint state of a sample, 0 for
    no limit. `drop`: the fraction of samples left out. `train`, `validation`, `test`: how many
    windows.
    """

    family: type[AbstractDynamics]
    n: int
    h1: int
    h2: int
    clip: float
    drop: float
    train: int
    validation: int
    test: int

    def data(self, seed):
        counts = (self.train, self.validation, self.test)
        windows = walker2d_windows(_rollouts(), seed, windows=counts, drop=self.drop)
        splits = {"train": windows.train, "validation": windows.validation, "test": windows.test}
        return {name: _rows(split) for name, split in splits.items()}

    def model(self, key):
        field_key, cell_key, readout_key = jax.random.split(key, 3)
        parts = 2 if is_second_order(self.family) else 1
        field = DenseField(
            Dense((field_inputs(self.family, self.n), self.n), jax.nn.relu, key=field_key)
        )
        sizes = (parts * self.n + CHANNELS, self.h1, self.h2, parts * self.n)
        return OdeRnn(
            make_dynamics(self.family, field, augment=self.n - CHANNELS),
            ZeroStart(self.n, parts),
            DenseCell(Dense(sizes, jnp.tanh, key=cell_key)),
            Linear(self.n, CHANNELS, key=readout_key),
            clip=self.clip,
        )

    def loss(self, model, batch, method, probe=None):
        sequence, passed = model(batch["inputs"], batch["gaps"], method, probe=probe)
        return jnp.mean((sequence.outputs - batch["targets"]) ** 2), Outcome({}, passed)

    def snapshot(self, model, shared, data, method):
        rows = jax.tree.map(lambda x: x[:8], data["test"])
        norms = model.adjoint_norms(rows["inputs"], rows["gaps"], method, jnp.sum)
        return {"adjoint_norms": norms}

    def closing(self, model, shared, data, method):
        """The outputs for the first windows of the test set."""
        rows = jax.tree.map(lambda x: x[:4], data["test"])
        return {"outputs": model(rows["inputs"], rows["gaps"], method)[0].outputs}

    def context(self, data):
        return {name: x[:4] for name, x in data["test"].items()}


@functools.cache
def _rollouts() -> list[np.ndarray]:
    return load_walker2d()


def _rows(split: Windows) -> dict[str, np.ndarray]:
    return {name: getattr(split, name) for name in ("inputs", "gaps", "targets")}

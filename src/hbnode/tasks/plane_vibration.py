"""Plane vibration (Fig. 8): forecasts of an irregularly sampled ground vibration test."""

from __future__ import annotations

import dataclasses
import functools
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from ..data import Forecasts, load_f16, plane_vibration_windows
from ..dynamics import ANODE, AbstractDynamics
from ..models import (
    Dense,
    DenseField,
    Linear,
    LinearStart,
    OdeRnn,
    SumCell,
    field_inputs,
    is_second_order,
    make_dynamics,
)
from .base import AbstractTask, Outcome

CHANNELS = 5
LENGTH = 64


@final
@dataclasses.dataclass(frozen=True)
class PlaneVibration(AbstractTask):
    """64 stamps are read one by one; the last interval is lengthened to forecast 8 rows. Loss: mean
    squared error of the forecast + `penalty` · that of each output against the next stamp.

    **Arguments:** `family`: the class of the dynamics. `n`, `h1`, `h2`: sizes of the state and of
    the hidden layers of the field. `clip`: the largest norm of the adjoint state of a sample, 0 for
    no limit. `drop`: the fraction of rows left out. `ahead`: rows to forecast. `interval`: how many
    units of time pass from one row of the full series to the next.
    """

    family: type[AbstractDynamics]
    n: int
    h1: int
    h2: int
    clip: float
    drop: float = 0.1
    ahead: int = 8
    penalty: float = 0.1
    interval: float = 0.1

    def data(self, seed):
        windows = plane_vibration_windows(_series(), seed, drop=self.drop, ahead=self.ahead)
        splits = {"train": windows.train, "validation": windows.validation, "test": windows.test}
        return {name: self._rows(split) for name, split in splits.items()}

    def _rows(self, split: Forecasts) -> dict[str, np.ndarray]:
        return {
            "inputs": split.inputs,
            "gaps": self.interval * split.gaps,
            "targets": split.targets,
            "forecast": split.forecast,
            "horizons": self.interval * split.horizons,
        }

    def model(self, key):
        start_key, field_key, cell_key, readout_key = jax.random.split(key, 4)
        parts = 2 if is_second_order(self.family) else 1
        sizes = (field_inputs(self.family, self.n), self.h1, self.h2, self.n)
        field = DenseField(Dense(sizes, jax.nn.relu, key=field_key))
        # ANODE starts from as many numbers as there are channels, and zeros.
        started = CHANNELS if self.family is ANODE else parts * self.n
        start = LinearStart(Linear(LENGTH * CHANNELS, started, key=start_key), self.n, parts)
        return OdeRnn(
            make_dynamics(self.family, field, augment=self.n - CHANNELS),
            start,
            SumCell(CHANNELS, self.n, parts, key=cell_key),
            Linear(self.n, CHANNELS, key=readout_key),
            clip=self.clip,
        )

    def loss(self, model, batch, method, probe=None):
        sequence, passed = model(
            batch["inputs"], batch["gaps"], method, horizons=batch["horizons"], probe=probe
        )
        forecast = jnp.mean((sequence.forecasts - batch["forecast"]) ** 2)
        one_step = jnp.mean((sequence.outputs - batch["targets"]) ** 2)
        measures = {"forecast_mse": forecast, "one_step_mse": one_step}
        return forecast + self.penalty * one_step, Outcome(measures, passed)

    def snapshot(self, model, shared, data, method):
        rows = jax.tree.map(lambda x: x[:1], data["test"])
        norms = model.adjoint_norms(rows["inputs"], rows["gaps"], method, jnp.sum)
        return {"adjoint_norms": norms}

    def closing(self, model, shared, data, method):
        """The outputs and forecasts of the first windows of the test set."""
        rows = jax.tree.map(lambda x: x[:4], data["test"])
        sequence, _ = model(rows["inputs"], rows["gaps"], method, horizons=rows["horizons"])
        return {"outputs": sequence.outputs, "forecasts": sequence.forecasts}

    def context(self, data):
        first = {name: x[:4] for name, x in data["test"].items()}
        return {"inputs": first["inputs"], "gaps": first["gaps"], "targets": first["targets"],
                "forecast": first["forecast"], "horizons": first["horizons"]}  # fmt: skip


@functools.cache
def _series() -> np.ndarray:
    return load_f16()

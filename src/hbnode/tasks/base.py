"""What training and the command line need to know of an experiment."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..models import Method, Pass


class Outcome(NamedTuple):
    """What a batch yields beside its loss."""

    measures: dict[str, Float[Array, ""]]
    """Means over the batch, such as the accuracy."""
    passed: Pass
    """Evaluations of the field, and whether a solve failed."""


class AbstractTask(abc.ABC):
    """An experiment that trains a model: data, model and loss.

    Data come in two parts. What belongs to one seed is a dict with a pytree of arrays for each
    split, the samples along the leading axis; "train" is the one to train on, all others are
    evaluated. What is common to all seeds, such as the images themselves, is `shared`.
    """

    @abc.abstractmethod
    def data(self, seed: int) -> dict[str, PyTree[np.ndarray]]:
        """The data of one seed. Sizes do not depend on the seed."""

    @abc.abstractmethod
    def model(self, key: PRNGKeyArray) -> eqx.Module:
        """A freshly initialised model."""

    @abc.abstractmethod
    def loss(
        self, model: Any, batch: PyTree[Array], method: Method, probe: Any = None
    ) -> tuple[Float[Array, ""], Outcome]:
        """The loss of a batch."""

    def shared(self) -> PyTree[np.ndarray]:
        """Arrays that all seeds use."""
        return ()

    def gather(self, shared: PyTree[Array], rows: PyTree[Array]) -> PyTree[Array]:
        """The samples of a batch, given its rows of the data of a seed."""
        return rows

    def snapshot(
        self, model: Any, shared: PyTree[Array], data: dict[str, PyTree[Array]], method: Method
    ) -> dict[str, Array]:
        """Arrays worth a figure, taken at each evaluation."""
        return {}

    def closing(
        self, model: Any, shared: PyTree[Array], data: dict[str, PyTree[Array]], method: Method
    ) -> dict[str, Array]:
        """Arrays worth a figure, taken once, of the trained model."""
        return {}

    def context(self, data: dict[str, PyTree[np.ndarray]]) -> dict[str, np.ndarray]:
        """What the figures need to know of the data of a seed beside the snapshots."""
        return {}


class AbstractStudy(abc.ABC):
    """An experiment without training."""

    @abc.abstractmethod
    def run(self, seeds: Sequence[int], method: Method) -> tuple[list[dict], dict[str, np.ndarray]]:
        """The lines for metrics.jsonl, and the arrays for the figures."""

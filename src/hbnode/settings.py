"""The settings of an experiment: dataclasses whose fields are the options of the command line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from .models import Method
from .solve import (
    AbstractGradient,
    Checkpointed,
    ContinuousAdjoint,
    DiscreteAdjoint,
    Dopri5,
    Nystrom4,
    Nystrom5,
    Nystrom6,
    Nystrom8,
    Tsit5,
)

SOLVERS: dict[str, Callable[[], Any]] = {
    "default": lambda: None,
    "dopri5": Dopri5,
    "tsit5": Tsit5,
    "nystrom4": Nystrom4,
    "nystrom5": Nystrom5,
    "nystrom6": Nystrom6,
    "nystrom8": Nystrom8,
}
GRADIENTS: dict[str, Callable[[], AbstractGradient | None]] = {
    "default": lambda: None,
    "discrete": DiscreteAdjoint,
    "checkpointed": Checkpointed,
    "continuous": ContinuousAdjoint,
    "continuous-full": lambda: ContinuousAdjoint(norm="full"),
}


@dataclasses.dataclass(frozen=True)
class SolverSettings:
    """How a model is solved and differentiated."""

    tolerance: float
    """Relative and absolute tolerance of a step, root mean square over the batch."""
    name: Literal["default", "dopri5", "tsit5", "nystrom4", "nystrom5", "nystrom6", "nystrom8"]
    """The solver; "default" is the library's choice for the model."""
    gradient: Literal["default", "discrete", "checkpointed", "continuous", "continuous-full"]
    """How gradients are made; "default" is the library's choice for the model, "continuous-full"
    has the parameter integrals under error control."""
    warm_start: bool
    """Recurrent models: each interval starts with the last step size of the one before."""
    max_steps: int = 4096
    """The most steps of one solve, accepted and rejected; more is a divergence."""

    def __post_init__(self):
        if not (math.isfinite(self.tolerance) and self.tolerance > 0):
            raise ValueError(f"solver.tolerance must be positive, got {self.tolerance}.")
        if self.max_steps < 1:
            raise ValueError(f"solver.max_steps must be at least 1, got {self.max_steps}.")

    def method(self) -> Method:
        return Method(
            self.tolerance,
            self.tolerance,
            SOLVERS[self.name](),
            GRADIENTS[self.gradient](),
            self.warm_start,
            self.max_steps,
        )


@dataclasses.dataclass(frozen=True)
class Network:
    """Sizes of the networks."""

    n: int
    """Size of the state h, augmentation included: numbers, or channels of an image."""
    h: int
    """Size of the hidden layers."""


@dataclasses.dataclass(frozen=True)
class RecurrentNetwork:
    """Sizes of the networks."""

    n: int
    """Size of the state h, augmentation included."""
    h1: int
    """Size of the first hidden layer."""
    h2: int
    """Size of the second hidden layer."""
    clip: float = 1.0
    """The largest l2 norm of the adjoint state of a sample between two stamps; 0: no limit."""


@dataclasses.dataclass(frozen=True)
class ImageData:
    """How many images to use."""

    train: int
    """Images to train on, at random out of those that are not held back for validation."""
    validation: int
    """Images for validation, at random out of 5,000 training images held back."""
    test: int
    """Images of the test set, at random."""
    shrink: int = 1
    """Images are averaged over squares of this many pixels."""


@dataclasses.dataclass(frozen=True)
class CifarData(ImageData):
    """How many images to use."""

    batches: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Which of the five files of 10,000 training images to take them from."""
    tolerances: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    """At the end, evaluations are counted at each of these tolerances (Fig. 7)."""


@dataclasses.dataclass(frozen=True)
class PlaneVibrationData:
    """What is made of the recorded series."""

    drop: float = 0.1
    """The fraction of rows left out at random."""
    ahead: int = 8
    """Rows to forecast."""
    penalty: float = 0.1
    """Weight of the error of each output against the next stamp."""
    interval: float = 0.1
    """Units of time from one row of the full series to the next."""


@dataclasses.dataclass(frozen=True)
class WalkerData:
    """What is made of the rollouts."""

    train: int
    """Windows to train on, at random."""
    validation: int
    """Windows for validation."""
    test: int
    """Windows for test."""
    drop: float = 0.1
    """The fraction of samples left out at random."""


@dataclasses.dataclass(frozen=True)
class Paths:
    """The paths to follow."""

    long: float = 100.0
    """Up to when to look for the first passages near the minimum, in units of t."""


@dataclasses.dataclass(frozen=True)
class Signal:
    """What drives the untrained models."""

    end: int = 64
    """Units of time, one measurement each."""
    scale: float = 100.0
    """What the measured voltages are multiplied with."""

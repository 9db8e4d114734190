"""Classification of images with a convolutional field (Figs. 1, 6 and 7)."""

from __future__ import annotations

import abc
import dataclasses
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ..data import image_split
from ..dynamics import AbstractDynamics
from ..models import (
    ConvolutionalField,
    ConvolutionalStart,
    Linear,
    OdeBlock,
    field_inputs,
    is_second_order,
    make_dynamics,
)
from ..solve import Checkpointed, Nystrom4
from .base import AbstractTask, Outcome
from .sweep import evaluations_by_tolerance

VALIDATION_POOL = 5000
"""How many of the training images no model is ever trained on."""
KEPT_STEPS = 16
"""Steps whose states are kept for the backward pass, each some megabytes large."""


class AbstractImages(abc.ABC):
    """A set of labelled images."""

    shape: tuple[int, int, int]
    """Height, width, channels."""
    classes: int = 10

    @abc.abstractmethod
    def load(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Images and labels to train with, images and labels to test with. The images are bytes."""


@final
@dataclasses.dataclass(frozen=True)
class ImageClassification(AbstractTask):
    """Cross-entropy of the classes read off the position h(1) of all pixels by one dense layer.

    **Arguments:** `images`: which images. `family`: the class of the dynamics. `n`, `h`: channels
    of the state and of the hidden layers. `train`, `validation`, `test`: how many images to use.
    `shrink`: images are averaged over squares of so many pixels. `tolerances`: at these the trained
    model is solved again, to count (Fig. 7).
    """

    images: AbstractImages
    family: type[AbstractDynamics]
    n: int
    h: int
    train: int
    validation: int
    test: int
    shrink: int = 1
    tolerances: tuple[float, ...] = ()

    def shared(self):
        train, train_labels, test, test_labels = self.images.load()
        height, width, channels = self._shape
        squares = (-1, height, self.shrink, width, self.shrink, channels)
        images = np.concatenate([train, test]).reshape(squares).mean(axis=(2, 4), dtype=np.float32)
        images = np.rint(images).astype(np.uint8)
        mean, std = images[: len(train)].mean(), images[: len(train)].std()
        labels = np.concatenate([train_labels, test_labels]).astype(np.int32)
        return {"images": images, "labels": labels, "mean": mean, "std": std}

    def data(self, seed):
        _, train_labels, _, test_labels = self.images.load()
        count = len(train_labels)
        split = image_split(count, seed, validation=min(VALIDATION_POOL, count // 2))
        test = np.random.default_rng(seed).permutation(len(test_labels))
        rows = {
            "train": split.train[: self.train],
            "validation": split.validation[: self.validation],
            "test": count + test[: self.test],
        }
        for name, wanted in rows.items():
            if len(wanted) < getattr(self, name):
                raise ValueError(
                    f"data.{name} asks for {getattr(self, name)} images, and there are "
                    f"{len(wanted)}."
                )
        return {name: wanted.astype(np.int32) for name, wanted in rows.items()}

    def gather(self, shared, rows):
        pixels = shared["images"][rows].astype(shared["mean"].dtype)
        return (pixels - shared["mean"]) / shared["std"], shared["labels"][rows]

    @property
    def _shape(self) -> tuple[int, int, int]:
        height, width, channels = self.images.shape
        if self.shrink < 1 or height % self.shrink or width % self.shrink:
            raise ValueError(
                f"data.shrink must divide the size {height} × {width} of the images, got "
                f"{self.shrink}."
            )
        return height // self.shrink, width // self.shrink, channels

    def model(self, key):
        height, width, channels = self._shape
        start_key, field_key, readout_key = jax.random.split(key, 3)
        inputs = field_inputs(self.family, self.n)
        field = ConvolutionalField(inputs, self.n, self.h, key=field_key)
        start = None
        if is_second_order(self.family):
            start = ConvolutionalStart(channels, self.n, self.h, key=start_key)
        dynamics = make_dynamics(self.family, field, augment=self.n - channels)
        readout = Linear(height * width * self.n, self.images.classes, key=readout_key)
        return OdeBlock(dynamics, start, PixelReadout(readout))

    def loss(self, model, batch, method, probe=None):
        pixels, labels = batch
        method = method.or_else(model.dynamics, Nystrom4(), Checkpointed(KEPT_STEPS))
        logits, passed = model(pixels, method, probe)
        loss = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))
        accuracy = jnp.mean(jnp.argmax(logits, axis=-1) == labels, dtype=logits.dtype)
        return loss, Outcome({"accuracy": accuracy}, passed)

    def closing(self, model, shared, data, method):
        """Evaluations of one test batch, forward and backward, at each tolerance."""
        if not self.tolerances:
            return {}
        batch = self.gather(shared, data["test"][:64])
        return evaluations_by_tolerance(self, model, batch, method, self.tolerances)


@final
class PixelReadout(eqx.Module):
    """fc of all pixels and channels."""

    layer: Linear

    def __call__(
        self, h: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch classes"]:
        return self.layer(h.reshape(h.shape[0], -1))

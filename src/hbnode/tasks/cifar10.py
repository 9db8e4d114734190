"""CIFAR-10 (Figs. 1 and 7): small photographs."""

from __future__ import annotations

import functools
from typing import final

from ..data import load_cifar10
from .images import AbstractImages


@final
class Cifar10(AbstractImages):
    """**Arguments:** `batches`: which of the five files of 10,000 training images to use."""

    shape = (32, 32, 3)

    def __init__(self, batches: tuple[int, ...] = (1, 2, 3, 4, 5)):
        self.batches = batches

    def load(self):
        return _load(self.batches)


@functools.cache
def _load(batches: tuple[int, ...]):
    return load_cifar10(batches)

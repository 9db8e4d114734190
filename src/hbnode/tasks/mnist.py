"""MNIST (Fig. 6): handwritten digits."""

from __future__ import annotations

import functools
from typing import final

from ..data import load_mnist
from .images import AbstractImages


@final
class Mnist(AbstractImages):
    shape = (28, 28, 1)

    def load(self):
        return _load()


@functools.cache
def _load():
    return load_mnist()

"""One step of a method, with every stage unrolled.

A loop of small operations is bound by their number. So a step is straight-line code: the stages
are unrolled, coefficients are Python numbers, and zeros among them cost nothing.

Every stepper carries the evaluation f0 at the start of the step and returns the one at its end,
f1. For a method that is FSAL this is its last stage. For one that is not it replaces the first
stage of the next step, so that a step always costs the same number of evaluations, dense output
has the derivative at both ends, and one evaluation is spent at the very end of a solve.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .systems import AbstractSystem


class Step(NamedTuple):
    """What one step yields. `dense` is what `interpolate` needs, `q` the increment of the
    quadratures, `q_error` and `error` estimates of local errors (`None` where the method has
    none)."""

    y: PyTree
    f: PyTree
    error: PyTree
    q: PyTree
    q_error: PyTree
    dense: PyTree


class AbstractStepper(eqx.Module):
    """A method applied to a system."""

    system: eqx.AbstractVar[AbstractSystem]
    evaluations: eqx.AbstractVar[int]
    error_order: eqx.AbstractVar[int]
    adaptive: eqx.AbstractVar[bool]
    lands: eqx.AbstractVar[bool]  # on every save time, because interpolation would be less accurate

    @abc.abstractmethod
    def step(self, t: Array, dt: Array, y: PyTree, f: PyTree) -> Step:
        """From t to t + dt, given f at the start."""

    @abc.abstractmethod
    def interpolate(self, dense: PyTree, dt: Array, theta: Array) -> PyTree:
        """The state at t + θ dt, 0 ≤ θ ≤ 1."""


def combine(coefficients: Sequence, terms: Sequence[PyTree]) -> PyTree:
    """Σ cᵢ·termᵢ over trees, leaving out zeros; `None` where nothing is left."""
    kept = [(float(c), x) for c, x in zip(coefficients, terms, strict=False) if c != 0]
    if not kept:
        return None

    def total(*leaves):
        result = kept[0][0] * leaves[0] if kept[0][0] != 1 else leaves[0]
        for (c, _), leaf in zip(kept[1:], leaves[1:], strict=True):
            result = result + c * leaf
        return result

    return jax.tree.map(total, *(x for _, x in kept))


def add_scaled(y: PyTree, scale: Array, x: PyTree) -> PyTree:
    """y + scale·x over trees, x possibly `None`."""
    return y if x is None else jax.tree.map(lambda a, b: a + scale * b, y, x)


def scaled(scale: Array, x: PyTree) -> PyTree:
    """scale·x over a tree, x possibly `None`."""
    return jax.tree.map(lambda a: scale * a, x)

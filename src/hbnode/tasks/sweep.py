"""How the evaluations of a trained model depend on the tolerance (Fig. 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..models import Method
from .base import AbstractTask


def at_tolerance(method: Method, tolerance: Array) -> Method:
    return dataclasses.replace(method, rtol=tolerance, atol=tolerance)


def evaluations_by_tolerance(
    task: AbstractTask,
    model: Any,
    batch: PyTree[Array],
    method: Method,
    tolerances: Sequence[float],
) -> dict[str, Array]:
    """Evaluations of one batch, forward and backward, at each tolerance; −1 where a solve fails."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    dtype = jax.tree.leaves(params)[0].dtype

    def count(tolerance):
        def loss(params, probe):
            at = at_tolerance(method, tolerance)
            value, outcome = task.loss(eqx.combine(params, static), batch, at, probe)
            return value, outcome.passed

        counts = jax.grad(loss, argnums=1, has_aux=True)
        backward, passed = counts(params, jnp.zeros((), dtype))
        ok = passed.failure == 0
        return jnp.where(ok, passed.nfe, -1), jnp.where(ok, backward, -1)

    tolerance = jnp.array(tolerances, dtype)
    forward, backward = jax.lax.map(count, tolerance)
    return {"tolerance": tolerance, "nfe_forward": forward, "nfe_backward": backward}

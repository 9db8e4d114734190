"""Checks of states that several families share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def check_position(h, name: str, family: str, hint: str) -> None:
    """`h` must be one array of floats."""
    if not isinstance(h, (jax.Array, np.ndarray, float, np.floating)):
        raise TypeError(f"{family}: {name} must be one array, got {_describe(h)}. {hint}")
    dtype = jnp.result_type(h)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(
            f"{family}: {name} must hold real floating-point numbers, got dtype {dtype}. "
            f"Convert it first, for instance with `{name}.astype(float)`."
        )
    if jnp.finfo(dtype).bits < 32:
        raise TypeError(
            f"{family}: {name} is {dtype}, too coarse for step-size control. "
            "Use float32 or float64."
        )


def check_pair(y, family: str, second: str) -> None:
    """`y` must be a pair of arrays of one shape and dtype."""
    hint = f"A {family} state is the pair (h, {second}): position and {_LONG[second]}."
    if not (isinstance(y, (tuple, list)) and len(y) == 2):
        raise TypeError(
            f"{family}: y0 must be the pair (h0, {second}0), got {_describe(y)}. "
            f"Pass (h0, jnp.zeros_like(h0)) to start at rest."
        )
    h, m = y
    check_position(h, "h0", family, hint)
    check_position(m, f"{second}0", family, hint)
    if jnp.shape(h) != jnp.shape(m):
        raise ValueError(
            f"{family}: h0 and {second}0 must have one shape, got {jnp.shape(h)} and "
            f"{jnp.shape(m)}."
        )
    if jnp.result_type(h) != jnp.result_type(m):
        raise TypeError(
            f"{family}: h0 and {second}0 must have one dtype, got {jnp.result_type(h)} and "
            f"{jnp.result_type(m)}."
        )


_LONG = {"m": "momentum", "v": "velocity"}


def _describe(y) -> str:
    if isinstance(y, (jax.Array, np.ndarray)):
        return f"one array of shape {y.shape}"
    if isinstance(y, (tuple, list)):
        return f"a {type(y).__name__} of length {len(y)}"
    return f"a {type(y).__name__}"

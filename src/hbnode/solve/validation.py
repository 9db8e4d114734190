"""Checks of the arguments of `solve`: what is wrong, with its value, and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..dynamics import AbstractDynamics, Paced
from ..dynamics.paced import unpaced
from ..dynamics.parameters import coefficient_value, is_concrete
from .nystrom import AbstractNystrom
from .solution import RESULTS


def check_dynamics(dynamics) -> None:
    if not isinstance(dynamics, AbstractDynamics):
        raise TypeError(
            f"`dynamics` must be one of hbnode.NODE, ANODE, SONODE, HBNODE, GHBNODE, got "
            f"{type(dynamics).__name__}. A field f(t, h, args) becomes one by hbnode.NODE(f)."
        )
    if not callable(dynamics.field):
        raise TypeError(f"`field` must be callable, got {dynamics.field!r}.")


def check_solver(solver, dynamics: AbstractDynamics, dt0, name: str = "solver") -> None:
    if isinstance(solver, AbstractNystrom):
        dynamics.nystrom_form()  # raises where there is none
        return
    if isinstance(solver, type):
        raise TypeError(f"`{name}` must be an instance: {solver.__name__}() with parentheses.")
    explicit = isinstance(solver, diffrax.Euler) or (
        isinstance(solver, diffrax.AbstractERK) and hasattr(solver, "tableau")
    )
    if not explicit:
        raise TypeError(
            f"`{name}` must be an explicit Runge–Kutta solver of diffrax (Euler, Heun, Midpoint, "
            "Ralston, Bosh3, Tsit5, Dopri5, Dopri8) or one of hbnode.Nystrom4(), Nystrom5(), "
            f"Nystrom6(), Nystrom8(); got {type(solver).__name__}."
        )
    if isinstance(solver, diffrax.Euler) and dt0 is None:
        raise ValueError(
            f"`{name}` diffrax.Euler() has no error estimate and takes steps of constant size: "
            "say which with `dt0`."
        )


def check_one_clock(dynamics: AbstractDynamics, solver) -> None:
    if isinstance(dynamics, Paced) and isinstance(solver, AbstractNystrom):
        raise ValueError(
            "ContinuousAdjoint by a Nyström pair needs all samples on one clock, and `dynamics` is "
            "Paced. Use DiscreteAdjoint(), or ContinuousAdjoint(solver=diffrax.Dopri5())."
        )


def check_field(dynamics: AbstractDynamics, t, y0: PyTree, args: PyTree) -> None:
    """Traces the field once, without running it, and compares shapes."""
    like = jax.eval_shape(lambda: jax.tree.leaves(y0)[0])
    out = jax.eval_shape(lambda: dynamics.evaluate(t, y0, args))
    family = type(dynamics).__name__
    if not (hasattr(out, "shape") and hasattr(out, "dtype")):
        raise TypeError(
            f"{family}: the field must return one array shaped like h, got a {type(out).__name__}."
        )
    if out.shape != like.shape:
        raise ValueError(
            f"{family}: the field returned shape {out.shape} for a state h of shape {like.shape}; "
            "the two must be equal."
        )
    if out.dtype != like.dtype:
        raise TypeError(
            f"{family}: the field returned dtype {out.dtype} for a state h of dtype {like.dtype}; "
            "the two must be equal. Cast the field's parameters or the state."
        )


def check_gate(dynamics: AbstractDynamics, y0: PyTree) -> None:
    gate: Callable | None = getattr(unpaced(dynamics), "gate", None)
    if gate is None:
        return
    m = jax.eval_shape(lambda: y0[1])
    out = jax.eval_shape(gate, m)
    if getattr(out, "shape", None) != m.shape or out.dtype != m.dtype:
        raise ValueError(f"`gate` must be elementwise: it returned {out} for a momentum {m}.")


def check_times(ts, dtype) -> Array:
    if not isinstance(ts, (jax.Array, np.ndarray, list, tuple)):
        raise TypeError(
            f"`ts` must be an array of times, got {ts!r}. Pass for instance [0.0, 1.0]."
        )
    if isinstance(ts, (list, tuple)):
        ts = (np if is_concrete(*jax.tree.leaves(ts)) else jnp).asarray(ts)
    if jnp.ndim(ts) != 1 or jnp.size(ts) == 0:
        raise ValueError(
            "`ts` must be a one-dimensional array of times that begins with the start, got shape "
            f"{jnp.shape(ts)}."
        )
    if is_concrete(ts):
        values = np.asarray(ts).astype(dtype)
        if not times_are_good(values, np):
            raise ValueError(
                "`ts` must be finite and strictly increasing or strictly decreasing (in the "
                f"precision of the state, {dtype}), got {values}."
            )
    return jnp.asarray(ts).astype(dtype)


def times_are_good(ts, xp=jnp):
    steps = xp.diff(ts)
    return xp.all(xp.isfinite(ts)) & (xp.all(steps > 0) | xp.all(steps < 0))


def check_tolerances(rtol, atol, dtype, where: str = "") -> tuple[Array, Array]:
    for name, x in (("rtol", rtol), ("atol", atol)):
        if jnp.ndim(x) != 0 or not jnp.issubdtype(jnp.result_type(x), jnp.number):
            raise TypeError(f"`{where}{name}` must be a number, got {x!r}.")
    if is_concrete(rtol, atol) and not tolerances_are_good(np.asarray(rtol), np.asarray(atol), np):
        raise ValueError(
            f"`{where}rtol` and `{where}atol` must be finite and not negative, and one of them "
            f"positive; got rtol={float(rtol)}, atol={float(atol)}."
        )
    if is_concrete(rtol, atol) and max(float(rtol), float(atol)) < jnp.finfo(dtype).eps:
        warnings.warn(
            f"The tolerance ({where}rtol={float(rtol):g}, {where}atol={float(atol):g}) is below "
            f"the resolution of {dtype} ({float(jnp.finfo(dtype).eps):.2g}): rounding decides the "
            "step sizes and the counts mean nothing. Use float64 or a larger tolerance.",
            stacklevel=3,
        )
    return (
        jax.lax.stop_gradient(jnp.asarray(rtol, dtype)),
        jax.lax.stop_gradient(jnp.asarray(atol, dtype)),
    )


def tolerances_are_good(rtol, atol, xp=jnp):
    finite = xp.isfinite(rtol) & xp.isfinite(atol)
    return finite & (rtol >= 0) & (atol >= 0) & ((rtol > 0) | (atol > 0))


def check_dt0(dt0, dtype) -> Array | None:
    if dt0 is None:
        return None
    if jnp.ndim(dt0) != 0:
        raise ValueError(f"`dt0` must be one step size, got shape {jnp.shape(dt0)}.")
    if is_concrete(dt0) and not (np.isfinite(dt0) and dt0 != 0):
        raise ValueError(f"`dt0` must be finite and not zero, got {dt0}; None chooses it.")
    return jax.lax.stop_gradient(jnp.asarray(dt0, dtype))


def check_max_steps(max_steps) -> None:
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise ValueError(f"`max_steps` must be a positive whole number, got {max_steps!r}.")


def value_faults(dynamics, ts, rtol, atol, dt0) -> RESULTS:
    """The faults of values that only the compiled program sees, as a result code."""
    result: Any = RESULTS.successful
    dynamics = unpaced(dynamics)
    coefficients = [
        coefficient_value(getattr(dynamics, name))
        for name in ("gamma", "xi")
        if hasattr(dynamics, name)
    ]
    for c in coefficients:
        c = jnp.asarray(c)
        result = RESULTS.where(~(jnp.isfinite(c) & (c >= 0)), RESULTS.bad_coefficients, result)
    if dt0 is not None:
        result = RESULTS.where(~(jnp.isfinite(dt0) & (dt0 != 0)), RESULTS.bad_dt0, result)
    result = RESULTS.where(~tolerances_are_good(rtol, atol), RESULTS.bad_tolerances, result)
    return RESULTS.where(~times_are_good(ts), RESULTS.bad_times, result)

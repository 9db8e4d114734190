"""What a solve returns."""

from __future__ import annotations

from typing import final

import diffrax
import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree


class RESULTS(diffrax.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a solve ended: diffrax's codes, and those it has no word for."""

    field_not_finite = (
        "The field returned NaN or infinity (or the state overflowed). Check the field there, its "
        "parameters, and whether the solution exists for that long."
    )
    bad_times = (
        "`ts` must be finite and strictly increasing or strictly decreasing. Nothing was solved."
    )
    bad_tolerances = (
        "`rtol` and `atol` must be finite, not negative, and not both zero. Nothing was solved."
    )
    bad_dt0 = "`dt0` must be finite and not zero. Nothing was solved."
    bad_coefficients = (
        "γ and ξ must be finite and not negative; learn them under that constraint with "
        "hbnode.Damping and hbnode.Restoring. Nothing was solved."
    )


@final
class Stats(eqx.Module):
    """Counts of one solve. One NFE is one evaluation of the field on the whole state that `solve`
    was given; under `jax.vmap` every sample has its own steps and its own counts."""

    nfe: Int[Array, ""]
    """Evaluations of the field: start-up, first stages and rejected steps included."""
    accepted: Int[Array, ""]
    """Steps that were kept."""
    rejected: Int[Array, ""]
    """Steps whose error was too large, done again with a smaller step size."""


@final
class Solution(eqx.Module):
    """The solution of a neural ODE at given times."""

    ts: Float[Array, " times"]
    """The times asked for, `ts[0]` being the start."""
    ys: PyTree[Array]
    """The states at `ts`, like y0 with a leading time axis; NaN at times that a failed solve did
    not reach."""
    stats: Stats
    """Counts of the forward solve."""
    result: RESULTS
    """`RESULTS.successful`, or what went wrong."""
    dt: Float[Array, ""]
    """The size of the last accepted step before it was cut to land on `ts[-1]`: pass it as `dt0`
    to the next solve of the same system, which then needs no trial evaluation to start."""

"""How a model is solved and differentiated, and what a pass through it tells."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..dynamics import AbstractDynamics
from ..solve import RESULTS, AbstractGradient, AbstractNystrom, Solution, prefers_nystrom, solve


@final
class Method(eqx.Module):
    """What a model is solved with. `None` stands for the model's default.

    **Arguments:** `solver`, `gradient`, `rtol`, `atol`, `max_steps`: as for `hbnode.solve`.
    `warm_start`: whether each interval of a recurrent model starts with the last step size of the
    one before, forward and backward.
    """

    rtol: float | Float[Array, ""]
    atol: float | Float[Array, ""]
    solver: Any = None
    gradient: AbstractGradient | None = None
    warm_start: bool = eqx.field(static=True, default=True)
    max_steps: int = eqx.field(static=True, default=4096)

    def or_else(
        self, dynamics: AbstractDynamics, pair: AbstractNystrom, gradient: AbstractGradient
    ) -> Method:
        """The method with what suits a model in the place of each `None`; `pair` where the
        dynamics have a Nyström form."""
        solver = pair if self.solver is None and prefers_nystrom(dynamics) else self.solver
        return dataclasses.replace(
            self, solver=solver, gradient=gradient if self.gradient is None else self.gradient
        )

    def solve(
        self, dynamics: AbstractDynamics, y0: PyTree, ts: Array, *, dt0=None, probe=None
    ) -> Solution:
        """A solve that reports failure by its result alone."""
        return solve(
            dynamics,
            y0,
            ts,
            solver=self.solver,
            gradient=self.gradient,
            rtol=self.rtol,
            atol=self.atol,
            dt0=dt0,
            max_steps=self.max_steps,
            probe=probe,
            throw=False,
        )


FAILURES = ("", "the field returned NaN or infinity", "step size underflow", "step limit reached")
"""What the codes of `failure_code` mean."""


def failure_code(sol: Solution) -> Int[Array, ""]:
    """0 for a solve that arrived, otherwise the number of its fault in `FAILURES`."""
    code = jnp.where(sol.result == RESULTS.successful, 0, 1)
    code = jnp.where(sol.result == RESULTS.dt_min_reached, 2, code)
    return jnp.where(sol.result == RESULTS.max_steps_reached, 3, code)


class Pass(NamedTuple):
    """What one pass of a batch through a model yields beside its outputs."""

    nfe: Int[Array, ""]
    """Forward evaluations of the field, each on the whole batch."""
    failure: Int[Array, ""]
    """0, or why the (first) solve that failed did so: a number in `FAILURES`."""

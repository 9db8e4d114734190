"""Error norms, the first step, and the settings of step-size control."""

from __future__ import annotations

from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .stepper import AbstractStepper


def rms_norm(x: PyTree) -> Array:
    """Root mean square over all entries of all leaves: one error norm for the whole batch."""
    leaves = jax.tree.leaves(x)
    total = sum(jnp.sum(jnp.square(leaf)) for leaf in leaves)
    return jnp.sqrt(total / sum(leaf.size for leaf in leaves))


class Tolerances(eqx.Module):
    """What "accurate enough" means: norm(error / (atol + rtol·|y|)) < 1."""

    rtol: Array
    atol: Array
    norm: Callable = eqx.field(static=True, default=rms_norm)

    def scaled_error(self, error: PyTree, y0: PyTree, y1: PyTree) -> Array:
        """The norm of the scaled error of a step from y0 to y1; infinite where either is not
        finite, so that such a step is always rejected."""

        def scale(e, a, b):
            return e / (self.atol + self.rtol * jnp.maximum(jnp.abs(a), jnp.abs(b)))

        norm = self.norm(jax.tree.map(scale, error, y0, y1))
        return jnp.where(jnp.isfinite(norm), norm, jnp.inf)

    def each_scaled_error(self, error: PyTree, y0: PyTree, y1: PyTree) -> Array:
        """The largest of the scaled errors of the single leaves."""
        leaves = zip(*map(jax.tree.leaves, (error, y0, y1)), strict=True)
        each = Tolerances(self.rtol, self.atol)
        sizes = [each.scaled_error(*leaf) for leaf in leaves]
        return jnp.max(jnp.stack(sizes)) if sizes else jnp.zeros_like(self.rtol)

    def first_step(
        self, stepper: AbstractStepper, t: Array, y: PyTree, f: PyTree, direction: Array
    ) -> Array:
        """A first step size, from the sizes of y, y' and y''. Costs one evaluation.

        E. Hairer, S. P. Nørsett, G. Wanner: Solving Ordinary Differential Equations I, section
        II.4.
        """
        system = stepper.system
        rate = system.rate(y, f)

        def size(x):
            return self.norm(
                jax.tree.map(lambda a, b: a / (self.atol + self.rtol * jnp.abs(b)), x, y)
            )

        d0, d1 = size(y), size(rate)
        tiny = (d0 < 1e-5) | (d1 < 1e-5)
        h0 = jnp.where(tiny, 1e-6, 0.01 * d0 / jnp.where(tiny, 1.0, d1))
        trial_t = t + direction * h0
        trial_y = jax.tree.map(lambda a, b: a + direction * h0 * b, y, rate)
        trial_rate = system.rate(trial_y, system.evaluate(trial_t, trial_y))
        d2 = size(jax.tree.map(jnp.subtract, trial_rate, rate)) / h0
        largest = jnp.maximum(d1, d2)
        flat = largest <= 1e-15
        h1 = jnp.where(
            flat,
            jnp.maximum(1e-6, 1e-3 * h0),
            (0.01 / jnp.where(flat, 1.0, largest)) ** (1 / stepper.error_order),
        )
        step = jnp.minimum(100 * h0, h1)
        return jnp.where(jnp.isfinite(step), step, 1e-6)


# The scaled error arrives as a scalar; what to do about it is diffrax's business.
CONTROLLER = diffrax.PIDController(rtol=0.0, atol=1.0)

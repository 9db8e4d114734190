"""Point cloud separation (Fig. 5): a disc within a ring, in two dimensions."""

from __future__ import annotations

import dataclasses
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..dynamics import AbstractDynamics
from ..models import (
    Dense,
    DenseField,
    Linear,
    OdeBlock,
    elu,
    field_inputs,
    hard_tanh,
    is_second_order,
    make_dynamics,
)
from .base import AbstractTask, Outcome
from .sweep import at_tolerance, evaluations_by_tolerance

DISC_POINTS, RING_POINTS = 40, 80
SNAPSHOT_TIMES = 9
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)
"""At these the trained model is solved again, to see what an error costs."""
EXACT = 1e-12


@final
@dataclasses.dataclass(frozen=True)
class PointCloud(AbstractTask):
    """40 points in the disc ‖r‖ < 0.5 (target −1), 80 in the ring 0.85 < ‖r‖ < 1 (target +1), all
    uniform in area; mean squared error. The split "full" is the training set in one batch, and
    "test" a cloud of its own.

    **Arguments:** `family`: the class of the dynamics. `n`, `h`: sizes of state and hidden layers.
    """

    family: type[AbstractDynamics]
    n: int
    h: int

    def data(self, seed):
        train, test = (cloud(np.random.default_rng([seed, part])) for part in range(2))
        return {"train": train, "full": train, "test": test}

    def model(self, key):
        start_key, field_key, readout_key = jax.random.split(key, 3)
        sizes = (field_inputs(self.family, self.n), self.h, self.h, self.n)
        field = DenseField(Dense(sizes, elu, key=field_key))
        start = None
        if is_second_order(self.family):
            start = VelocityStart(Dense((2, self.h, self.h, self.n), hard_tanh, key=start_key))
        dynamics = make_dynamics(self.family, field, augment=self.n - 2)
        return OdeBlock(dynamics, start, Readout(Linear(self.n, 1, key=readout_key)))

    def loss(self, model, batch, method, probe=None):
        points, targets = batch
        outputs, passed = model(points, method, probe)
        accuracy = jnp.mean(outputs * targets > 0, dtype=outputs.dtype)
        return jnp.mean((outputs - targets) ** 2), Outcome({"accuracy": accuracy}, passed)

    def snapshot(self, model, shared, data, method):
        points, _ = data["full"]
        ts = jnp.linspace(0.0, 1.0, SNAPSHOT_TIMES, dtype=points.dtype)
        return {"positions": model.trajectory(points, ts, method)}

    def closing(self, model, shared, data, method):
        """Evaluations of the whole cloud at each tolerance, and the error reached: the root mean
        square of what h(1) is off."""
        batch = data["full"]
        span = jnp.array([0.0, 1.0], batch[0].dtype)

        def end(tolerance):
            return model.trajectory(batch[0], span, at_tolerance(method, tolerance))[-1]

        counts = evaluations_by_tolerance(self, model, batch, method, TOLERANCES)
        exact = jnp.array(max(EXACT, 10 * jnp.finfo(span.dtype).eps), span.dtype)
        missed = jax.lax.map(end, counts["tolerance"]) - end(exact)[None]
        return counts | {"error": jnp.sqrt(jnp.mean(missed**2, axis=(1, 2)))}

    def context(self, data):
        points, targets = data["full"]
        return {"points": points, "targets": targets, "times": np.linspace(0, 1, SNAPSHOT_TIMES)}


@final
class VelocityStart(eqx.Module):
    """(h0, m0) = (x, network(x))."""

    net: Dense

    def __call__(self, x):
        return x, self.net(x)


@final
class Readout(eqx.Module):
    """fc to one number, tanh."""

    layer: Linear

    def __call__(self, h):
        return jnp.tanh(self.layer(h)[..., 0])


def cloud(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points and targets."""
    disc = 0.5 * np.sqrt(rng.random(DISC_POINTS))
    ring = np.sqrt(rng.uniform(0.85**2, 1.0, RING_POINTS))
    radius = np.concatenate([disc, ring])
    angle = rng.uniform(0, 2 * np.pi, radius.size)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points, np.repeat([-1.0, 1.0], [DISC_POINTS, RING_POINTS])

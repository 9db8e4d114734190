"""(c) and (d): hbnode, with its defaults (`fast`) and with the paper's method (`paper`)."""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from hbnode.models import Method

from .problems import Problem
from .weights import in_torch_layout, pixels_of

WARM_UP = {"point-cloud": 100, "plane-vibration": 20, "walker2d": 20, "mnist": 4, "cifar10": 4}
"""Updates before anything is measured, so that the field is no longer the one of the start."""


class HbnodeUpdate:
    """The update of a problem by a method."""

    def __init__(self, problem: Problem, method: Method):
        self.problem = problem
        self.weights, static = eqx.partition(problem.model, eqx.is_inexact_array)
        optimiser = optax.adam(problem.learning_rate)
        self.moments = optimiser.init(self.weights)
        zero = jnp.zeros((), problem.dtype)

        def loss(weights, probe, batch):
            model = eqx.combine(weights, static)
            value, outcome = problem.task.loss(model, batch, method, probe)
            return value, outcome.passed

        @jax.jit
        def update(weights, moments, batch):
            both = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
            (value, passed), (grads, backward) = both(weights, zero, batch)
            changes, moments = optimiser.update(grads, moments)
            told = value, grads, passed.nfe, backward, passed.failure
            return optax.apply_updates(weights, changes), moments, told

        self.function = update
        self.arguments = self.weights, self.moments, problem.batch

    def gradient(self, told: Any) -> dict[str, np.ndarray]:
        """By the names of `in_torch_layout`."""
        model = eqx.combine(told[1], self.problem.model)
        return in_torch_layout(model, pixels_of(self.problem.batch))


def warmed_up(problem: Problem) -> Problem:
    """The problem after some updates, and with a new batch."""
    start = time.perf_counter()
    update = HbnodeUpdate(problem, problem.method("fast"))
    weights, moments, batch = update.arguments
    program = update.function.lower(*update.arguments).compile()
    seconds = time.perf_counter() - start
    for _ in range(WARM_UP[problem.name]):
        weights, moments, told = program(weights, moments, batch)
        batch = problem.next_batch()
        if not (np.isfinite(told[0]) and told[4] == 0):
            raise RuntimeError(f"{problem.name} {problem.model_name} diverged: {told}")
    model = eqx.combine(weights, problem.model)
    return problem._replace(model=model, batch=batch, cold_seconds=seconds)

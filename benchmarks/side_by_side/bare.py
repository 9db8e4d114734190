"""The limit: the field alone, and the field with its vector–Jacobian product, in a loop."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from .problems import Problem

UNROLLED = 6


def bare_field(problem: Problem, seconds: float) -> tuple[float, float]:
    """Seconds of one evaluation of the field on the whole batch, and of one with its product with
    respect to weights and state, the products of the weights summed. Each is inside a loop in one
    compiled program, as in a solve, where consecutive evaluations depend on each other; the least
    of several runs that take about `seconds` each time.
    """
    field = problem.model.dynamics.field
    h = _state(problem)
    t = jnp.zeros((), h.dtype)

    def forward(count, field, h):
        def body(_, h):
            for _ in range(UNROLLED):
                h = 0.9 * h + 1e-3 * field(t, h, None)
            return h

        return jax.lax.fori_loop(0, count, body, h)

    def backward(count, field, h):
        def body(_, carry):
            h, a, total = carry
            for _ in range(UNROLLED):
                f, pull = jax.vjp(lambda field, h: field(t, h, None), field, h)
                field_bar, h_bar = pull(a)
                h, a = 0.9 * h + 1e-3 * f, 0.9 * a + 1e-3 * h_bar
                total = jax.tree.map(jnp.add, total, field_bar)
            return h, a, total

        zeros = jax.tree.map(jnp.zeros_like, field)
        return jax.lax.fori_loop(0, count, body, (h, h, zeros))

    return _each(forward, field, h, seconds), _each(backward, field, h, seconds)


def _each(function, field, h, seconds: float) -> float:
    program = jax.jit(function).lower(1, field, h).compile()

    def run(count: int) -> float:
        start = time.perf_counter()
        jax.block_until_ready(program(count, field, h))
        return time.perf_counter() - start

    run(1)
    count = max(1, int(seconds / run(1)))
    return min(run(count) for _ in range(5)) / count / UNROLLED


def _state(problem: Problem) -> jax.Array:
    """Positions of the shape that the field gets in an update."""
    if problem.recurrent:
        n = problem.model.readout.weight.shape[0]
        values = np.random.default_rng(0).normal(size=(problem.batch["inputs"].shape[0], n))
        return jnp.asarray(values, problem.dtype)
    h, _ = problem.model.lift(problem.batch[0])
    return h

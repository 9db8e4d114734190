"""The two compiled programs of training: some updates, and an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ..models import FAILURES, Method
from ..tasks.base import AbstractTask
from .settings import TrainingSettings

REASONS = (*FAILURES, "the loss is not finite", "the loss exploded", "a gradient is not finite")
"""Why training of a seed ended early, by the number in `SeedState.failure`."""
_LOSS, _EXPLOSION, _GRADIENT = range(len(FAILURES), len(REASONS))


class SeedState(NamedTuple):
    """All that training of one seed changes."""

    params: PyTree[Array]
    optimiser: PyTree[Array]
    failure: Int[Array, ""]
    """0, or why this seed diverged; then it is updated no more."""
    failed_at: Int[Array, ""]
    """The update at which it did, counted from 1."""


class Programs(NamedTuple):
    """Functions of one seed."""

    start: Callable
    """key, spare → the state to begin with"""
    train: Callable
    """state, key, data, shared, step, count → state, what each update told"""
    evaluate: Callable
    """state, data, shared → {split: {measure: value}}, snapshot"""
    close: Callable
    """state, data, shared → arrays"""


def make_programs(
    task: AbstractTask,
    settings: TrainingSettings,
    method: Method,
    samples: int,
    longest: int,
    dtype: jnp.dtype,
) -> Programs:
    """**Arguments:** `samples`: the size of the training set. `longest`: the most updates in one
    call. `dtype`: of parameters and data."""
    optimiser = optax.adam(settings.learning_rate)
    static = eqx.partition(task.model(jax.random.key(0)), eqx.is_inexact_array)[1]
    per_epoch = settings.updates_per_epoch(samples)
    epochs = (longest - 1) // per_epoch + 2  # a call may begin and end within an epoch
    zero = jnp.zeros((), dtype)

    def start(key: PRNGKeyArray, spare: Bool[Array, ""]) -> SeedState:
        params, _ = eqx.partition(task.model(jax.random.fold_in(key, 0)), eqx.is_inexact_array)
        params = jax.tree.map(lambda x: x.astype(dtype), params)
        return SeedState(
            params, optimiser.init(params), jnp.where(spare, -1, 0), jnp.zeros((), int)
        )

    def shuffled(key: PRNGKeyArray, epoch: Array) -> Int[Array, "updates batch"]:
        """The rows of each batch of an epoch, the same whenever they are asked for."""
        key = jax.random.fold_in(jax.random.fold_in(key, 1), epoch)
        order = jax.random.permutation(key, samples)
        return order[: per_epoch * settings.batch].reshape(per_epoch, settings.batch)

    def loss(params: PyTree[Array], probe: Array, batch: PyTree[Array]):
        return task.loss(eqx.combine(params, static), batch, method, probe)

    def update(state: SeedState, batch: PyTree[Array], step: Array) -> tuple[SeedState, dict]:
        gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
        (value, outcome), (grads, backward) = gradient(state.params, zero, batch)
        finite = jnp.isfinite(sum(jnp.sum(g) for g in jax.tree.leaves(grads)))
        failure = jnp.where(finite, 0, _GRADIENT)
        failure = jnp.where(value > settings.explosion, _EXPLOSION, failure)
        failure = jnp.where(jnp.isfinite(value), failure, _LOSS)
        failure = jnp.where(outcome.passed.failure > 0, outcome.passed.failure, failure)
        changes, moments = optimiser.update(grads, state.optimiser, state.params)
        good = failure == 0

        def keep(new, old):
            return jax.tree.map(lambda a, b: jnp.where(good, a, b), new, old)

        state = SeedState(
            keep(optax.apply_updates(state.params, changes), state.params),
            keep(moments, state.optimiser),
            failure.astype(state.failure.dtype),
            jnp.where(good, 0, step + 1),
        )
        told = {"loss": value, "nfe_forward": outcome.passed.nfe, "nfe_backward": backward}
        told |= outcome.measures
        return state, {name: jnp.asarray(x, dtype) for name, x in told.items()}

    def train(
        state: SeedState,
        key: PRNGKeyArray,
        data: PyTree[Array],
        shared: PyTree[Array],
        step: Int[Array, ""],
        count: Int[Array, ""],
    ) -> tuple[SeedState, dict[str, Float[Array, " longest"]]]:
        """`count` updates, the first of which is `step`; what each told, NaN where none was."""
        first = step // per_epoch
        rows = jax.vmap(shuffled, in_axes=(None, 0))(key, first + jnp.arange(epochs))

        def one(carry):
            i, state, history = carry
            epoch, position = (step + i) // per_epoch - first, (step + i) % per_epoch
            mine = rows[epoch, position]
            batch = task.gather(shared, jax.tree.map(lambda x: x[mine], data["train"]))
            state, told = update(state, batch, step + i)
            history = {name: x.at[i].set(told[name]) for name, x in history.items()}
            return i + 1, state, history

        batch = jax.eval_shape(
            lambda: task.gather(shared, jax.tree.map(lambda x: x[rows[0, 0]], data["train"]))
        )
        names = jax.eval_shape(update, state, batch, step)[1]
        history = {name: jnp.full(longest, jnp.nan, dtype) for name in names}
        carry = (jnp.zeros_like(count), state, history)
        _, state, history = jax.lax.while_loop(
            lambda carry: (carry[0] < count) & (carry[1].failure == 0), one, carry
        )
        return state, history

    def evaluate(state: SeedState, data: dict[str, PyTree[Array]], shared: PyTree[Array]):
        """Means over the samples of each split but "train", of the NFE over its batches; and the
        snapshot."""

        def run():
            model = eqx.combine(state.params, static)

            def measure(rows: PyTree[Array]) -> dict[str, Array]:
                value, outcome = task.loss(model, task.gather(shared, rows), method)
                told = {"loss": value, "nfe_forward": outcome.passed.nfe, **outcome.measures}
                return {name: jnp.asarray(x, dtype) for name, x in told.items()}

            told = {
                split: over_batches(measure, rows, settings.evaluation_batch)
                for split, rows in data.items()
                if split != "train"
            }
            return told, task.snapshot(model, shared, data, method)

        return unless_diverged(state, run)

    def close(state: SeedState, data: dict[str, PyTree[Array]], shared: PyTree[Array]):
        """The closing arrays of the task."""
        return unless_diverged(
            state,
            lambda: task.closing(eqx.combine(state.params, static), shared, data, method),
        )

    return Programs(start, train, evaluate, close)


def unless_diverged(state: SeedState, run: Callable[[], PyTree[Array]]) -> PyTree[Array]:
    """What `run` returns; zeros, without the work, for a seed that is trained no more."""
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run))
    return jax.lax.cond(state.failure == 0, run, lambda: blank)


def over_batches(
    measure: Callable[[Any], dict[str, Array]], rows: PyTree[Array], size: int
) -> dict[str, Array]:
    """Means of what `measure` tells of batches, weighted by their sizes."""
    count = jax.tree.leaves(rows)[0].shape[0]
    full, rest = divmod(count, size)
    parts: list[tuple[int, dict[str, Array]]] = []
    if full:
        batches = jax.tree.map(lambda x: x[: full * size].reshape(full, size, *x.shape[1:]), rows)
        parts.append((full * size, jax.tree.map(jnp.mean, jax.lax.map(measure, batches))))
    if rest:
        parts.append((rest, measure(jax.tree.map(lambda x: x[full * size :], rows))))
    return {name: sum(n * told[name] for n, told in parts) / count for name in parts[0][1]}

"""Many seeds of the point cloud at once, and memory against the number of steps."""

from __future__ import annotations

import time
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import hbnode
from hbnode.experiments import build, preset
from hbnode.tasks import AbstractTask
from hbnode.training.program import make_programs
from hbnode.training.seeds import Seeds

from .problems import make_problem
from .timing import temporary_megabytes

SEEDS, UPDATES, REPEATS = 100, 5, 5
ROOM = (16, 64, 128, 1024)


def seeds_together() -> dict[str, Any]:
    """Seconds of some updates of many seeds: one after the other, each with the whole machine, and
    all in one program that spreads them over the devices, one for each core."""
    settings = preset("point-cloud", "HBNODE", "paper", "fast")
    task = build("point-cloud", "HBNODE", settings)
    assert isinstance(task, AbstractTask)
    seeds = Seeds(range(SEEDS))
    data = jax.tree.map(lambda *x: np.stack(x), *(task.data(int(s)) for s in seeds.filled))
    samples = data["train"][0].shape[1]
    method = settings.solver.method()
    programs = make_programs(task, settings.training, method, samples, UPDATES, jnp.float64)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds.filled))
    states = jax.vmap(programs.start)(keys, jnp.asarray(seeds.spare))
    step, count = jnp.asarray(0), jnp.asarray(UPDATES)

    def one(state, key, data):
        return programs.train(state, key, data, (), step, count)

    together = jax.jit(seeds.map(one, (True, True, True)))
    arguments = [seeds.place(x) for x in (states, keys, data)]
    single = jax.jit(one)
    each = [jax.tree.map(lambda x, i=i: x[i], (states, keys, data)) for i in range(SEEDS)]

    def run_together():
        jax.block_until_ready(together(*arguments))

    def run_apart():
        for mine in each:
            jax.block_until_ready(single(*mine))

    seconds: dict[str, list[float]] = {"together": [], "apart": []}
    for repeat in range(REPEATS + 1):
        for name, run in (("together", run_together), ("apart", run_apart)):
            start = time.perf_counter()
            run()
            if repeat > 0:  # the first compiles
                seconds[name].append(time.perf_counter() - start)
    return {"seeds": SEEDS, "updates": UPDATES, "devices": len(jax.devices()), **seconds}


def memory_by_steps() -> dict[str, Any]:
    """Megabytes of temporary memory of the compiled point-cloud gradient by Dopri5, against the
    number of steps it has room for; and those of one recorded step."""
    problem = make_problem("point-cloud", "HBNODE")
    params, static = eqx.partition(problem.model, eqx.is_inexact_array)
    points, _ = problem.batch
    found: dict[str, Any] = {"room": ROOM, "step": 3 * points.nbytes / 1e6}
    gradients = (hbnode.DiscreteAdjoint(), hbnode.ContinuousAdjoint(norm="full"))
    for gradient in gradients:
        row = []
        for room in ROOM:

            def loss(params, room=room, gradient=gradient):
                model = eqx.combine(params, static)
                sol = hbnode.solve(
                    model.dynamics, model.lift(points), jnp.array([0.0, 1.0]),
                    solver=diffrax.Dopri5(), gradient=gradient,
                    max_steps=room, throw=False,
                )  # fmt: skip
                return jnp.sum(sol.ys[0])

            program = jax.jit(jax.grad(loss)).lower(params).compile()
            row.append(temporary_megabytes(program))
        found[type(gradient).__name__] = row
    return found

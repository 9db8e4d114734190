"""The point-cloud HBNODE that the core's benchmarks measure: data, model, training."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import hbnode

jax.config.update("jax_enable_x64", True)

ACTIVATIONS = {"tanh": jnp.tanh, "elu": jax.nn.elu}
WIDTH = 14


def cloud(seed: int = 0):
    """40 points of the disc ‖r‖ < 0.5 (−1) and 80 of the annulus 0.85 < ‖r‖ < 1 (+1)."""
    rng = np.random.default_rng(seed)
    disc = 0.5 * np.sqrt(rng.random(40))
    ring = np.sqrt(0.85**2 + (1 - 0.85**2) * rng.random(80))
    radius, angle = np.concatenate([disc, ring]), 2 * np.pi * rng.random(120)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return jnp.asarray(points), jnp.asarray(np.repeat([-1.0, 1.0], [40, 80]))


class Net(eqx.Module):
    """A fully connected net on a batch."""

    layers: list[tuple[jax.Array, jax.Array]]
    activation: Callable = eqx.field(static=True)

    def __init__(self, sizes, activation, key):
        self.activation = activation
        self.layers = []
        for n, m in itertools.pairwise(sizes):
            key, k1, k2 = jax.random.split(key, 3)
            bound = 1 / np.sqrt(n)
            self.layers.append(
                (
                    jax.random.uniform(k1, (n, m), minval=-bound, maxval=bound),
                    jax.random.uniform(k2, (m,), minval=-bound, maxval=bound),
                )
            )

    def __call__(self, x):
        for w, b in self.layers[:-1]:
            x = self.activation(x @ w + b)
        w, b = self.layers[-1]
        return x @ w + b


class Model(eqx.Module):
    """Initial velocity, field, output and ω of the paper's point-cloud HBNODE."""

    velocity: Net
    field: Net
    output: Net
    damping: hbnode.Damping

    def __init__(self, activation: str, seed: int = 0):
        k1, k2, k3 = jax.random.split(jax.random.key(seed), 3)
        self.velocity = Net((2, WIDTH, WIDTH, 2), lambda x: jnp.clip(x, -5, 5), k1)
        self.field = Net((2, WIDTH, WIDTH, 2), ACTIVATIONS[activation], k2)
        self.output = Net((2, 1), None, k3)
        self.damping = hbnode.Damping()

    @property
    def dynamics(self):
        return hbnode.HBNODE(lambda t, h, args: self.field(h), self.damping)

    def lift(self, x):
        return x, self.velocity(x)

    def error(self, h, targets):
        return jnp.mean((jnp.tanh(self.output(h))[:, 0] - targets) ** 2)


def trained(activation: str, T: float, updates: int = 400, tol: float = 1e-5):
    """A model that separates the cloud: of a few seeds the first whose loss falls below 0.05."""
    x, targets = cloud()

    def loss(model):
        ts = jnp.array([0.0, T])
        sol = hbnode.solve(
            model.dynamics, model.lift(x), ts, solver=diffrax.Dopri5(), rtol=tol, atol=tol,
            throw=False,
        )  # fmt: skip
        return model.error(sol.ys[0][-1], targets)

    optimiser = optax.adam(0.01 if T <= 1 else 0.003)

    @eqx.filter_jit
    def train(model):
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def update(carry, _):
            params, state = carry
            value, grads = jax.value_and_grad(lambda p: loss(eqx.combine(p, static)))(params)
            changes, state = optimiser.update(grads, state)
            return (optax.apply_updates(params, changes), state), value

        carry = params, optimiser.init(params)
        (params, _), values = jax.lax.scan(update, carry, None, length=updates)
        return eqx.combine(params, static), values[-1]

    for seed in range(10):
        model, value = train(Model(activation, seed))
        if value < 0.05:
            return model, float(value)
    raise RuntimeError(f"no seed trains: {activation}, T = {T}")


def machine() -> str:
    """What the figures were measured on."""
    import os

    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        cpu = names[0] if names else cpu
    except OSError:
        pass
    versions = f"jax {jax.__version__}, equinox {eqx.__version__}, diffrax {diffrax.__version__}"
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"

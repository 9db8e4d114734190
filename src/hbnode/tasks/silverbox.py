"""How fast ‖h(t)‖ grows before any training, driven by a measured signal (Fig. 3)."""

from __future__ import annotations

import dataclasses
import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data import load_silverbox
from ..dynamics import GHBNODE, HBNODE, AbstractDynamics
from ..models import (
    Dense,
    Linear,
    failure_code,
    field_inputs,
    hard_tanh,
    is_second_order,
    make_dynamics,
    position,
)
from .base import AbstractStudy

GAMMA = 1 / (1 + math.exp(3))
XI = math.log(2)
SAMPLES_A_UNIT = 4


@final
@dataclasses.dataclass(frozen=True)
class Silverbox(AbstractStudy):
    """f is one dense layer of the state and the input V1(t), which is interpolated linearly between
    one measurement each unit of time; h starts from the output V2 at t = 0.

    **Arguments:** `family`: the class of the dynamics. `n`, `h`: sizes of the state, and of the
    hidden layers of the network that makes the initial velocity. `end`: how many units of time.
    `scale`: what the measured voltages are multiplied with.
    """

    family: type[AbstractDynamics]
    n: int
    h: int
    end: int
    scale: float

    def run(self, seeds, method):
        signal = self.scale * load_silverbox()[: self.end + 1]
        ts = jnp.linspace(0.0, self.end, SAMPLES_A_UNIT * self.end + 1)

        def trajectory(key):
            model = UntrainedModel(self.family, self.n, self.h, jnp.array(signal[:, 0]), key)
            sol = method.solve(model.dynamics, model.start(jnp.array(signal[:1, 1])), ts)
            norms = jnp.linalg.norm(position(sol.ys), axis=-1)
            return norms, sol.stats.nfe, failure_code(sol)

        keys = jax.vmap(jax.random.key)(jnp.array(seeds))
        norms, nfe, failure = jax.tree.map(np.asarray, jax.jit(jax.vmap(trajectory))(keys))
        lines = [
            dict(seed=seed, step=0, epoch=0, split="untrained", norm_end=float(norms[i, -1]),
                 norm_max=float(norms[i].max()), nfe_forward=int(nfe[i]), nfe_backward=0,
                 failure=int(failure[i]))
            for i, seed in enumerate(seeds)
        ]  # fmt: skip
        signal_ts = np.arange(self.end + 1)
        arrays = {"ts": np.asarray(ts), "norms": norms, "signal": signal, "signal_ts": signal_ts}
        return lines, arrays


@final
class UntrainedModel(eqx.Module):
    """The field of the initialisation test, and what the state starts from."""

    layer: Linear
    velocity: Dense | None
    signal: Float[Array, " samples"]
    family: type[AbstractDynamics] = eqx.field(static=True)

    def __init__(self, family, n: int, h: int, signal: Array, key):
        layer_key, velocity_key = jax.random.split(key)
        self.layer = Linear(field_inputs(family, n) + 1, n, key=layer_key)
        self.velocity = None
        if is_second_order(family):
            self.velocity = Dense((n, h, h, n), hard_tanh, key=velocity_key)
        self.signal = signal
        self.family = family

    def field(self, t, y, args):
        v1 = jnp.interp(t, jnp.arange(self.signal.size, dtype=self.signal.dtype), self.signal)
        parts = [*y] if isinstance(y, tuple) else [y]
        return self.layer(jnp.concatenate([*parts, v1[None]]))

    @property
    def dynamics(self) -> AbstractDynamics:
        if self.family is HBNODE:
            return HBNODE(self.field, gamma=GAMMA)
        if self.family is GHBNODE:
            return GHBNODE(self.field, gamma=GAMMA, xi=XI, gate=hard_tanh)
        return make_dynamics(self.family, self.field, augment=self.layer.bias.size - 1)

    def start(self, x: Float[Array, " 1"]):
        if self.velocity is not None:
            return x, self.velocity(x)
        return jnp.concatenate([x, jnp.zeros(self.layer.bias.size - x.size, x.dtype)])

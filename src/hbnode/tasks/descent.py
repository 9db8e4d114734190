"""Gradient flow against heavy-ball flow on two test functions of optimisation (Fig. 2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from ..dynamics import HBNODE, NODE, AbstractDynamics
from ..models import Method, failure_code, position
from ..solve import Dopri5
from .base import AbstractStudy

NEAR = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
"""Distances from the minimum whose first passage is timed."""
LONG_SAMPLES = 20_001


class Landscape(NamedTuple):
    """A function to descend, as the appendix sets it up; every path starts in (0, 0) at rest."""

    function: Callable
    minimum: tuple[float, float]
    step: float
    end: float
    gamma: float


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def beale(x):
    return sum((c - x[0] + x[0] * x[1] ** k) ** 2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)))


LANDSCAPES = {
    "rosenbrock": Landscape(rosenbrock, (1.0, 1.0), step=0.001, end=1.0, gamma=0.9),
    "beale": Landscape(beale, (3.0, 0.5), step=0.01, end=2.0, gamma=0.7),
}


@final
@dataclasses.dataclass(frozen=True)
class Descent(AbstractStudy):
    """x' = −∇F(x) as a NODE, x'' + γx' = −∇F(x) as an HBNODE, with the fixed steps of the paper;
    and, with the step size under control, the times at which the paths first come near the
    minimum.

    **Arguments:** `family`: NODE or HBNODE. `long`: up to when to look for first passages.
    """

    family: type[AbstractDynamics]
    long: float

    def run(self, seeds, method):
        lines, arrays = [], {}
        for name, landscape in LANDSCAPES.items():
            steps = round(landscape.end / landscape.step)
            ts, path, nfe, failure = _fixed_steps(self._dynamics(landscape), steps, landscape)
            values = jax.vmap(landscape.function)(path)
            distance = _distance(path, landscape)
            lines += [
                dict(seed=seed, step=steps, epoch=0, split=name, loss=float(values[-1]),
                     distance=float(distance[-1]), nfe_forward=int(nfe), nfe_backward=0,
                     failure=int(failure))
                for seed in seeds
            ]  # fmt: skip
            times = self._passages(landscape, method)
            arrays |= {
                f"{name}_ts": ts, f"{name}_path": path, f"{name}_values": values,
                f"{name}_distance": distance, f"{name}_first_passage": times,
            }  # fmt: skip
        arrays["near"] = np.array(NEAR)
        return lines, {name: np.asarray(array) for name, array in arrays.items()}

    def _dynamics(self, landscape: Landscape) -> AbstractDynamics:
        def field(t, x, args):
            return -jax.grad(landscape.function)(x)

        return NODE(field) if self.family is NODE else HBNODE(field, gamma=landscape.gamma)

    def _passages(self, landscape: Landscape, method: Method) -> np.ndarray:
        """The first times within each of the distances `NEAR`; infinity where there is none."""
        ts = jnp.linspace(0.0, self.long, LONG_SAMPLES)
        sol = method.solve(self._dynamics(landscape), self._start(), ts)
        distance = np.asarray(_distance(position(sol.ys), landscape))
        within = distance[:, None] <= np.array(NEAR)
        return np.where(within.any(axis=0), np.asarray(ts)[within.argmax(axis=0)], np.inf)

    def _start(self):
        rest = jnp.zeros(2)
        return rest if self.family is NODE else (rest, rest)


def _fixed_steps(dynamics, steps: int, landscape: Landscape):
    """Dopri5 with steps of one size: each a solve of its own with nothing to control."""
    method = Method(rtol=1e3, atol=1e3, solver=Dopri5(), max_steps=4)
    rest = jnp.zeros(2)
    ts = landscape.step * jnp.arange(steps + 1.0)

    @jax.jit
    def run(start):
        def step(state, t):
            span = jnp.stack([t, t + landscape.step])
            sol = method.solve(dynamics, state, span, dt0=2 * landscape.step)
            state = jax.tree.map(lambda y: y[-1], sol.ys)
            return state, (position(state), sol.stats.nfe, failure_code(sol))

        _, (path, nfe, failure) = jax.lax.scan(step, start, ts[:-1])
        return path, nfe.sum(), failure.max()

    path, nfe, failure = run(rest if isinstance(dynamics, NODE) else (rest, rest))
    return ts, jnp.concatenate([rest[None], path]), nfe, failure


def _distance(path, landscape: Landscape):
    return jnp.linalg.norm(path - jnp.array([landscape.minimum]), axis=1)

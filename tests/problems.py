"""Systems whose solutions are known in closed form, and small members of every family.

Everything here is written out without the code under test, except that `dynamics` builds it. All
numbers are float64 and come from fixed seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import scipy.linalg as sl
from jax.tree_util import Partial

import hbnode


def _cos_sin(x):
    """cos √x and sin √x / √x as entire functions of x: cosh and sinh where x < 0."""
    small = jnp.abs(x) < 1e-2
    far = jnp.where(small, 1.0, x)
    root = jnp.sqrt(jnp.abs(far))
    cos = jnp.where(far > 0, jnp.cos(root), jnp.cosh(root))
    sin = jnp.where(far > 0, jnp.sin(root), jnp.sinh(root)) / root
    near = jnp.where(small, x, 0.0)
    cos_near, sin_near, term = jnp.zeros_like(x), jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(7):  # term = (-x)^k / (2k)!
        cos_near = cos_near + term
        sin_near = sin_near + term / (2 * k + 1)
        term = -term * near / ((2 * k + 1) * (2 * k + 2))
    return jnp.where(small, cos_near, cos), jnp.where(small, sin_near, sin)


def damped_oscillator(t, h0, m0, omega, gamma):
    """The pair (h, m) at time t of h'' + γ h' = −ω² h from (h0, m0) at time 0, scalars all.

    With d = ω² − γ²/4, C = cos(t√d), S = sin(t√d)/√d (hyperbolic where d < 0; 1 and t where d = 0):
    h = e^{−γt/2} (h0 C + (m0 + γ h0/2) S),  m = e^{−γt/2} (m0 C − (ω² h0 + γ m0/2) S).
    Differentiable in every argument, at critical damping too.
    """
    t = jnp.asarray(t)
    cos, sin = _cos_sin((omega**2 - gamma**2 / 4) * t**2)
    sin, decay = t * sin, jnp.exp(-gamma * t / 2)
    h = decay * (h0 * cos + (m0 + gamma * h0 / 2) * sin)
    m = decay * (m0 * cos - (omega**2 * h0 + gamma * m0 / 2) * sin)
    return h, m


def _spring(stiffness, t, h, args):
    return -stiffness * h


@dataclasses.dataclass(frozen=True)
class DampedOscillator:
    """h'' + γ h' = −ω² h, as an HBNODE on a state of shape (1,)."""

    omega: float
    gamma: float
    h0: float = 1.0
    m0: float = -0.4

    @property
    def y0(self):
        return jnp.array([self.h0]), jnp.array([self.m0])

    def dynamics(self) -> hbnode.HBNODE:
        """The field's only parameter is the stiffness ω², a trainable array; γ is one too."""
        field = Partial(_spring, jnp.asarray(self.omega**2))
        return hbnode.HBNODE(field, gamma=jnp.asarray(self.gamma))

    def exact(self, t):
        """The pair (h, m) at t, each of shape t.shape + (1,)."""
        h, m = damped_oscillator(jnp.asarray(t), self.h0, self.m0, self.omega, self.gamma)
        return h[..., None], m[..., None]

    def propagator(self, t) -> np.ndarray:
        """∂(h, m)(t) / ∂(h0, m0), a 2 × 2 matrix."""
        columns = [(1.0, 0.0), (0.0, 1.0)]
        ends = [damped_oscillator(t, h, m, self.omega, self.gamma) for h, m in columns]
        return np.array(ends).T


OSCILLATORS = {
    "underdamped": DampedOscillator(omega=2.0, gamma=0.6),
    "critical": DampedOscillator(omega=1.5, gamma=3.0),
    "overdamped": DampedOscillator(omega=1.0, gamma=2.9),
    "undamped": DampedOscillator(omega=1.7, gamma=0.0),
}


def _linear(theta, t, h, args):
    return theta["A"] @ h


def _linear_pair(theta, t, y, args):
    return theta["A"] @ y[0] + theta["B"] @ y[1]


def _identity(m):
    return m


def _block(a, b, c, d):
    return jnp.concatenate([jnp.concatenate([a, b], axis=1), jnp.concatenate([c, d], axis=1)])


@dataclasses.dataclass(frozen=True)
class Linear:
    """z' = G z, whose solution is exp(t G) z0. For a second-order family z = (h, m).

    `theta` holds what the family has of A, B, γ and ξ; `generator(theta)` makes G of it in jax, so
    that `exact_jax` can be differentiated in theta, y0 and t.
    """

    theta: dict[str, jax.Array]
    y0: Any
    make: Callable[[dict], Any]
    generator: Callable[[dict], jax.Array]

    def dynamics(self):
        return self.make(self.theta)

    @property
    def G(self) -> np.ndarray:
        return np.asarray(self.generator(self.theta))

    def flat(self, y):
        """A state, or several along leading axes, as vectors z."""
        return jnp.concatenate(jax.tree.leaves(y), axis=-1)

    def state(self, z):
        """The inverse of `flat`."""
        if not isinstance(self.y0, tuple):
            return z
        n = z.shape[-1] // 2
        return z[..., :n], z[..., n:]

    def propagator(self, t: float) -> np.ndarray:
        """∂z(t) / ∂z(0), by scipy."""
        return sl.expm(t * self.G)

    def exact(self, ts):
        """The states at the times `ts` (measured from the start), with a leading time axis."""
        z0 = np.asarray(self.flat(self.y0))
        return self.state(np.stack([self.propagator(float(t)) @ z0 for t in np.atleast_1d(ts)]))

    def exact_jax(self, theta, y0, t):
        """The state at the time `t`."""
        return self.state(jsl.expm(t * self.generator(theta)) @ self.flat(y0))


def _linear_systems(n: int = 3, seed: int = 1) -> dict[str, Linear]:
    rng = np.random.default_rng(seed)
    A = jnp.asarray(0.8 * rng.normal(size=(n, n)) - 0.7 * np.eye(n))
    B = jnp.asarray(0.5 * rng.normal(size=(n, n)) - 0.4 * np.eye(n))
    h, m = (jnp.asarray(x) for x in rng.normal(size=(2, n)))
    gamma, xi = jnp.asarray(0.35), jnp.asarray(0.8)
    eye, zero = jnp.eye(n), jnp.zeros((n, n))
    return {
        "NODE": Linear({"A": A}, h, lambda p: hbnode.NODE(Partial(_linear, p)), lambda p: p["A"]),
        "ANODE": Linear(
            {"A": A},
            h.at[n - 1 :].set(0.0),
            lambda p: hbnode.ANODE(Partial(_linear, p), augment=1),
            lambda p: p["A"],
        ),
        "SONODE": Linear(
            {"A": A, "B": B},
            (h, m),
            lambda p: hbnode.SONODE(Partial(_linear_pair, p)),
            lambda p: _block(zero, eye, p["A"], p["B"]),
        ),
        "HBNODE": Linear(
            {"A": A, "gamma": gamma},
            (h, m),
            lambda p: hbnode.HBNODE(Partial(_linear, p), gamma=p["gamma"]),
            lambda p: _block(zero, eye, p["A"], -p["gamma"] * eye),
        ),
        "GHBNODE": Linear(
            {"A": A, "gamma": gamma, "xi": xi},
            (h, m),
            lambda p: hbnode.GHBNODE(
                Partial(_linear, p), gamma=p["gamma"], xi=p["xi"], gate=_identity
            ),
            lambda p: _block(zero, eye, p["A"] - p["xi"] * eye, -p["gamma"] * eye),
        ),
    }


LINEAR = _linear_systems()


def mlp(theta, t, h, args):
    """f(t, h) = W2 tanh(W1 h + w t + b) + cos(2t) · drive, with `args = {"drive": ...}`."""
    hidden = jnp.tanh(theta["W1"] @ h + theta["w"] * t + theta["b"])
    return theta["W2"] @ hidden + jnp.cos(2 * t) * args["drive"]


def mlp_pair(theta, t, y, args):
    """The same for a field that reads the velocity: W1 h + V v inside the tanh."""
    h, v = y
    hidden = jnp.tanh(theta["W1"] @ h + theta["V"] @ v + theta["w"] * t + theta["b"])
    return theta["W2"] @ hidden + jnp.cos(2 * t) * args["drive"]


def parameters(seed: int = 0, n: int = 3, width: int = 5) -> dict[str, jax.Array]:
    """One dictionary for all families; each reads what it has."""
    rng = np.random.default_rng([seed, 100])
    shapes = {"W1": (width, n), "V": (width, n), "w": (width,), "b": (width,), "W2": (n, width)}
    theta = {k: jnp.asarray(0.7 * rng.normal(size=shape)) for k, shape in shapes.items()}
    return theta | {"omega": jnp.asarray(-0.8), "chi": jnp.asarray(0.3)}


def arguments(seed: int = 0, n: int = 3) -> dict[str, jax.Array]:
    return {"drive": jnp.asarray(0.5 * np.random.default_rng([seed, 101]).normal(size=n))}


def initial_state(name: str, seed: int = 0, n: int = 3):
    """A random y0 for `FAMILIES[name]`; the last channel of the ANODE's starts at zero."""
    h, m = (jnp.asarray(x) for x in np.random.default_rng([seed, 102]).normal(size=(2, n)))
    if name == "ANODE":
        return h.at[n - 1].set(0.0)
    return h if name == "NODE" else (h, m)


FAMILIES: dict[str, Callable[[dict], Any]] = {
    "NODE": lambda p: hbnode.NODE(Partial(mlp, p)),
    "ANODE": lambda p: hbnode.ANODE(Partial(mlp, p), augment=1),
    "SONODE": lambda p: hbnode.SONODE(Partial(mlp_pair, p)),
    "HBNODE": lambda p: hbnode.HBNODE(Partial(mlp, p), gamma=hbnode.Damping(p["omega"])),
    "GHBNODE": lambda p: hbnode.GHBNODE(
        Partial(mlp, p), gamma=hbnode.Damping(p["omega"]), xi=hbnode.Restoring(p["chi"])
    ),
    "GHBNODE-identity": lambda p: hbnode.GHBNODE(
        Partial(mlp, p),
        gamma=hbnode.Damping(p["omega"]),
        xi=hbnode.Restoring(p["chi"]),
        gate=_identity,
    ),
}


def rate(name: str, theta, t, y, args):
    """The right-hand side of `FAMILIES[name](theta)`, written out from section 1 of the design."""
    gamma = 1 / (1 + jnp.exp(-theta["omega"]))
    xi = jnp.log(1 + jnp.exp(theta["chi"]))
    if name in ("NODE", "ANODE"):
        return mlp(theta, t, y, args)
    h, m = y
    match name:
        case "SONODE":
            return m, mlp_pair(theta, t, y, args)
        case "HBNODE":
            return m, -gamma * m + mlp(theta, t, h, args)
        case "GHBNODE":
            return jnp.tanh(m), -gamma * m + mlp(theta, t, h, args) - xi * h
        case "GHBNODE-identity":
            return m, -gamma * m + mlp(theta, t, h, args) - xi * h
    raise ValueError(f"no family {name!r}")


def reference_flow(name: str, theta, y0, t0, t1, args, steps: int = 200):
    """The state at t1 by `steps` classical Runge–Kutta steps of one size: differentiable, and
    free of the code under test. The error is about 1e-11 over one unit of time in 200 steps."""
    dt = (t1 - t0) / steps

    def shift(y, k, by):
        return jax.tree.map(lambda a, b: a + by * b, y, k)

    def step(y, i):
        t = t0 + i * dt
        k1 = rate(name, theta, t, y, args)
        k2 = rate(name, theta, t + dt / 2, shift(y, k1, dt / 2), args)
        k3 = rate(name, theta, t + dt / 2, shift(y, k2, dt / 2), args)
        k4 = rate(name, theta, t + dt, shift(y, k3, dt), args)
        mean = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return shift(y, mean, dt), None

    return jax.lax.scan(step, y0, jnp.arange(float(steps)))[0]

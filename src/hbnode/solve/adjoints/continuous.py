r"""The continuous adjoint: the gradient as the solution of another equation, solved backwards.

With a = ∂L/∂h and b = ∂L/∂m (Props. 2 and 3 of the paper)

$$a' = -b\,(\partial f/\partial h - \xi I), \qquad b' = -a\,\sigma'(m) + \gamma b,$$

and dL/dθ = ∫ b ∂f/∂θ dt, dL/dγ = −∫ b·m dt, dL/dξ = −∫ b·h dt. A Runge–Kutta solver takes this
first-order system, whatever the family. For an HBNODE b obeys b'' = γ b' + b ∂f/∂h, a heavy ball
with the same damping run backwards (Prop. 1), and a Nyström solver takes (h, b) in that form.
"""

from __future__ import annotations

from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...dynamics.parameters import cast_like
from ..control import Tolerances, rms_norm
from ..failure import raise_on_failure
from ..nystrom import AbstractNystrom
from ..solution import RESULTS
from ..stepping import run
from ..systems import AbstractNystromSystem, AbstractSystem
from .base import (
    AbstractGradient,
    Inputs,
    Outputs,
    Settings,
    dense_cotangents,
    make_stepper,
    solve_forward,
)


@final
class ContinuousAdjoint(AbstractGradient):
    """The paper's gradient: the adjoint equation solved backwards beside the state.

    Its memory does not depend on the number of steps, its error is that of another solve. The
    state is made again on the way, and set to the stored one at each save time.

    **Arguments:** `norm`: whose error steers the step size. `"state"`: that of the state and of
    its adjoint only; the parameter integrals are quadratures on the nodes of that solve. `"full"`:
    that of every parameter integral too, as torchdiffeq does. `solver`, `rtol`, `atol`: those of
    the backward solve, the forward ones by default. With a Nyström solver the adjoint of an HBNODE
    is solved in the second-order form of Prop. 1.

    Without `dt0` the backward solve finds its own first step; with `dt0` it starts with the step
    size that the forward solve ended with.
    """

    norm: Literal["state", "full"] = eqx.field(static=True, default="state")
    solver: object = None
    rtol: float | Array | None = None
    atol: float | Array | None = None

    def __check_init__(self):
        if self.norm not in ("state", "full"):
            raise ValueError(
                f'`norm` must be "state" (state and adjoint) or "full" (the parameter integrals '
                f"too), got {self.norm!r}."
            )

    def integrate(self, inputs: Inputs, settings: Settings) -> Outputs:
        dtype = inputs.ts.dtype
        forward = settings.tolerances
        backward = Tolerances(
            forward.rtol if self.rtol is None else jnp.asarray(self.rtol, dtype),
            forward.atol if self.atol is None else jnp.asarray(self.atol, dtype),
            _pair_norm if isinstance(self.solver_for(settings), AbstractNystrom) else _norm,
        )
        solver = self.solver_for(settings)
        return _solve(inputs, settings, solver, backward, self.norm == "full")

    def solver_for(self, settings: Settings):
        """The solver of the backward system."""
        return settings.solver if self.solver is None else self.solver


def _norm(parts) -> Array:
    """Of a pair (state, adjoint): the larger error counts."""
    state, adjoint = parts
    return jnp.maximum(rms_norm(state), rms_norm(adjoint))


def _pair_norm(parts) -> Array:
    """The same for ((h, b), (m, b'))."""
    (h, b), (m, db) = parts
    return jnp.maximum(rms_norm((h, m)), rms_norm((b, db)))


@final
class AdjointSystem(AbstractSystem):
    """State and adjoint as one first-order system, for every family."""

    learned: PyTree
    fixed: PyTree

    def evaluate(self, t, y):
        state, adjoint = y

        def vector_field(learned, state):
            dynamics, args = eqx.combine(learned, self.fixed)
            return dynamics.rate(state, dynamics.evaluate(t, state, args))

        rate, pull = jax.vjp(vector_field, self.learned, state)
        learned_bar, state_bar = pull(adjoint)
        return rate, state_bar, learned_bar

    def rate(self, y, f):
        rate, state_bar, _ = f
        return rate, jax.tree.map(jnp.negative, state_bar)

    def integrand(self, t, y, f):
        return jax.tree.map(jnp.negative, f[2])

    def start(self, state, adjoint):
        """The state of this system."""
        return state, adjoint

    def adjoint(self, y):
        """The adjoint in a state of this system."""
        return y[1]

    def settle(self, q, t0, y0, t1, y1):
        """The quadratures at the end of an interval: nothing to add."""
        return q


@final
class AdjointNystromSystem(AbstractNystromSystem):
    r"""The HBNODE and its adjoint as two heavy balls:

    $$h'' + \gamma h' = f(t, h) - \xi h, \qquad
      b'' - \gamma b' = b\,(\partial f/\partial h - \xi I).$$

    The integral −∫ b·m dt for dL/dγ reads the velocity, which the nodes do not have. From
    d/dt (b·m − b'·h + γ b·h) = b·f − (b ∂f/∂h)·h follows, for any reference time r, s = t − r,

    $$-\!\int b\cdot m\,dt = \int \tfrac{s}{2}\,(b\cdot f - (b\,\partial f/\partial h)\cdot h)
      + \tfrac{\gamma}{2}\, b\cdot h\;dt
      - \Big[\tfrac12\, b\cdot h + \tfrac{s}{2}(b\cdot m - b'\cdot h + \gamma\, b\cdot h)\Big],$$

    free of the velocity but for the ends of the interval. Here r is where the interval begins.
    """

    learned: PyTree
    fixed: PyTree
    reference: Array

    def _form(self):
        dynamics, _ = eqx.combine(self.learned, self.fixed)
        return dynamics.nystrom_form()

    def evaluate(self, t, y):
        (h, b), velocities = y

        def field(learned, h):
            dynamics, args = eqx.combine(learned, self.fixed)
            return dynamics.evaluate(t, (h, velocities[0]), args)

        f, pull = jax.vjp(field, self.learned, h)
        learned_bar, h_bar = pull(b)
        return f, h_bar, learned_bar

    def damping(self):
        gamma = self._form().gamma
        return gamma, -jnp.asarray(gamma)

    def pace(self):
        return None  # `solve` refuses paced dynamics here

    def acceleration(self, position, f):
        (h, b), (force, h_bar, _) = position, f
        xi = self._form().xi
        if xi is None:
            return force, h_bar
        return force - cast_like(xi, h) * h, h_bar - cast_like(xi, b) * b

    def rate(self, y, f):
        position, velocity = y
        g, gamma = self.acceleration(position, f), self.damping()
        return velocity, jax.tree.map(lambda gi, d, v: gi - cast_like(d, v) * v, g, gamma, velocity)

    def integrand(self, t, y, f):
        (h, b), _ = y
        force, h_bar, learned_bar = f
        gamma = self._form().gamma
        q = jax.tree.map(jnp.negative, learned_bar)
        bh = jnp.sum(b * h)
        virial = jnp.sum(b * force) - jnp.sum(h_bar * h)
        half = (t - self.reference) / 2
        return _with_coefficients(q, -(half * virial + cast_like(gamma, h) / 2 * bh), bh)

    def start(self, state, adjoint):
        """(h, b), (m, b') from the state (h, m) and its adjoint (a, b)."""
        (h, m), (a, b) = state, adjoint
        return (h, b), (m, cast_like(self._form().gamma, b) * b - a)

    def adjoint(self, y):
        """The adjoint (a, b), a = γ b − b'."""
        (_, b), (_, db) = y
        return cast_like(self._form().gamma, b) * b - db, b

    def settle(self, q, t0, y0, t1, y1):
        """Adds what the integral for dL/dγ takes from the ends of an interval."""

        def boundary(t, y):
            (h, b), (m, db) = y
            gamma = cast_like(self._form().gamma, h)
            bh = jnp.sum(b * h)
            half = (t - self.reference) / 2
            return bh / 2 + half * (jnp.sum(b * m) - jnp.sum(db * h) + gamma * bh)

        return _with_coefficients(q, boundary(t1, y1) - boundary(t0, y0), 0.0)


def _with_coefficients(q: PyTree, gamma_bar: Array, xi_bar: Array | float) -> PyTree:
    """`q` with these numbers added for γ and ξ, where they are learned at all."""
    dynamics_bar, args_bar = q
    for name, value in (("gamma", gamma_bar), ("xi", xi_bar)):
        old = getattr(dynamics_bar, name, None)
        if old is not None:
            dynamics_bar = eqx.tree_at(
                lambda d, name=name: getattr(d, name),
                dynamics_bar,
                old + jnp.asarray(value, old.dtype),
            )
    return dynamics_bar, args_bar


@eqx.filter_custom_vjp
def _solve(inputs: Inputs, settings: Settings, solver, backward: Tolerances, full: bool):
    return solve_forward(inputs, settings)[0]


@_solve.def_fwd
def _solve_fwd(perturbed, inputs: Inputs, settings: Settings, solver, backward, full):
    outputs, _ = solve_forward(inputs, settings)
    return outputs, (outputs, perturbed)


@_solve.def_bwd
def _solve_bwd(
    residuals, ct: Outputs, _perturbed, inputs: Inputs, settings: Settings, solver, backward, full
):
    outputs, perturbed = residuals
    dynamics, _, ts, args, probe = inputs
    learned, fixed = eqx.partition((dynamics, args), (perturbed.dynamics, perturbed.args))
    ys, ys_bar = outputs.ys, dense_cotangents(ct.ys, outputs.ys)

    def make_system(reference) -> AdjointSystem | AdjointNystromSystem:
        if isinstance(solver, AbstractNystrom):
            return AdjointNystromSystem(learned, fixed, reference)
        return AdjointSystem(learned, fixed)

    def dot(x, y):
        pairs = zip(*map(jax.tree.leaves, (x, y)), strict=True)
        return jnp.sum(jnp.stack([jnp.sum(a * b) for a, b in pairs]))

    def at(k):
        return jax.tree.map(lambda y: y[k], ys), jax.tree.map(lambda y: y[k], ys_bar)

    def interval(carry, k):
        """Back from ts[k + 1] to ts[k]."""
        adjoint, q, dt, nfe, result, t, _ = carry
        t1, t0 = ts[k + 1], ts[k]
        state, jump = at(k + 1)
        adjoint = jax.tree.map(jnp.add, adjoint, jump)
        system = make_system(t1)
        stepper = make_stepper(solver, system)
        y = system.start(state, adjoint)
        f = system.evaluate(t1, y)
        cold = jnp.isnan(dt)
        direction = jnp.sign(t0 - t1)
        if stepper.adaptive:
            dt = jax.lax.cond(
                cold, lambda: backward.first_step(stepper, t1, y, f, direction), lambda: dt
            )
        end = run(
            stepper, backward, jnp.stack([t1, t0]), y, f0=f, dt0=dt,
            max_steps=settings.max_steps, result=result, q0=q, control_q=full,
        )  # fmt: skip
        q = system.settle(end.q, t1, y, t0, end.y)
        adjoint = system.adjoint(end.y)
        nfe = nfe + end.nfe + 1 + jnp.where(cold, 1, 0)
        failed_at = jnp.where(result == RESULTS.successful, end.t, t)
        # dL/dt of the end of this interval, and of its start as far as this interval goes
        slope1 = dot(jump, _state_rate(system, y, f))
        slope0 = -dot(adjoint, _state_rate(system, end.y, end.f))
        return (adjoint, q, end.dt, nfe, end.result, failed_at, slope0), slope1

    zeros = jax.tree.map(jnp.zeros_like, (jax.tree.map(lambda y: y[0], ys), learned))
    dt = jnp.asarray(jnp.nan, ts.dtype) if settings.dt0 is None else outputs.dt
    zero = jnp.zeros((), ts.dtype)
    carry = (*zeros, dt, jnp.zeros_like(outputs.nfe), outputs.result, outputs.t, zero)
    n = ts.size - 1
    if n == 0:
        slopes = jnp.zeros(0, ts.dtype)
    elif n == 1:
        carry, slope = interval(carry, 0)
        slopes = slope[None]
    else:
        carry, slopes = jax.lax.scan(interval, carry, jnp.arange(n), reverse=True)
    adjoint, (dynamics_bar, args_bar), _, nfe, result, t, slope0 = carry

    y0_bar = jax.tree.map(lambda a, c: a + c[0], adjoint, ys_bar)
    ts_bar = jnp.concatenate([slope0[None], slopes])
    nfe_bar = None if probe is None else nfe.astype(probe.dtype)
    grads = Inputs(dynamics_bar, y0_bar, ts_bar, args_bar, None)
    failed = result != RESULTS.successful
    grads = jax.tree.map(lambda g: jnp.where(failed, jnp.nan, g), grads)
    if settings.throw:
        grads = raise_on_failure(grads, result, t, "the backward solve of ContinuousAdjoint")
    return grads._replace(probe=nfe_bar)


def _state_rate(system: AdjointSystem | AdjointNystromSystem, y, f):
    """y' of the state alone."""
    if isinstance(system, AdjointSystem):
        return system.rate(y, f)[0]
    (dh, _), (dm, _) = system.rate(y, f)
    return dh, dm

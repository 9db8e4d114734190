r"""The propositions of the paper as functions of a trajectory.

The adjoint state of a loss L along a solution y(t) is the row vector ∂L/∂y(t); a second-order
family has the pair a = ∂L/∂h, b = ∂L/∂m. Equation numbers count the paper's equations in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Complex, Float, PyTree

from .dynamics import GHBNODE, HBNODE, SONODE, AbstractDynamics
from .dynamics.heavy_ball import identity, is_identity
from .dynamics.parameters import cast_like
from .solve import solve
from .solve.validation import check_dynamics, check_times

Loss = Callable[[PyTree], Array]
Times = Float[ArrayLike, " times"] | list | tuple


class AdjointResiduals(NamedTuple):
    """Samples of an adjoint state, and by how much they miss the equations it should satisfy."""

    ts: Float[Array, " nodes"]
    """The Chebyshev–Lobatto nodes, from t0 to t1."""
    adjoints: PyTree[Array]
    """The adjoint states there, with a leading axis of nodes."""
    residuals: PyTree[Array]
    """Left side minus right side of each equation there."""
    relative: Float[Array, ""]
    """The largest residual over the largest derivative or right side, all equations together."""


def adjoint_states(
    dynamics: AbstractDynamics, loss: Loss, y0: PyTree, ts: Times, *, args=None, **solve_options
) -> PyTree[Array]:
    r"""The adjoint state ∂L/∂y(t_k) at every time of `ts`.

    A perturbation δ_k = 0 is added to the state at t_k, before the loss and the rest of the
    trajectory see it, and L is differentiated in it:

    $$\frac{\partial L}{\partial y(t_k)} = \frac{\partial L}{\partial \delta_k}
      = \sum_{j \ge k} \frac{\partial L}{\partial y_j} \frac{\partial y(t_j)}{\partial y(t_k)}.$$

    So it holds what the loss reads at t_k itself. The result is like y0, with a leading time axis.

    **Arguments:** `dynamics`, `y0`, `ts`, `args`: as for `hbnode.solve`. `loss`: a function of the
    states at `ts` (like y0, with a leading time axis) that returns a scalar. `solve_options`: any
    other argument of `hbnode.solve`; each interval between two times is one solve of its own.

    ```python
    last = lambda ys: jnp.sum(ys[0][-1])
    a, b = adjoint_states(dynamics, last, (h0, m0), jnp.linspace(0.0, 1.0, 11), rtol=1e-9)
    ```
    """
    y0, ts = _check_problem(dynamics, y0, ts)
    return _states_and_adjoints(dynamics, loss, y0, ts, args, solve_options, last=False)[1]


def adjoint_norms(
    dynamics: AbstractDynamics, loss: Loss, y0: PyTree, ts: Times, *, args=None, **solve_options
) -> Float[Array, " times"]:
    """The ℓ2 norms of the [`adjoint_states`][], each over all entries of a state: over the pair
    [a_h, a_m] for a second-order family, as in the paper's Fig. 4. The arguments are the same."""
    adjoints = adjoint_states(dynamics, loss, y0, ts, args=args, **solve_options)
    return jax.vmap(lambda a: jnp.linalg.norm(ravel_pytree(a)[0]))(adjoints)


def adjoint_residuals(
    dynamics: AbstractDynamics, loss: Loss, y0: PyTree, t0: ArrayLike, t1: ArrayLike,
    *, nodes: int = 24, args=None, **solve_options,
) -> AdjointResiduals:  # fmt: skip
    r"""How well the adjoint state satisfies its first-order system along a trajectory:

    | family | residuals |
    |---|---|
    | NODE, ANODE | a' + a ∂f/∂h (eq. 3) |
    | SONODE | a' + b ∂f/∂h and b' + a + b ∂f/∂v (eq. 49) |
    | HBNODE | a' + b ∂f/∂h and b' + a − γb (Prop. 2) |
    | GHBNODE | a' + b (∂f/∂h − ξI) and b' + a σ'(m) − γb (Prop. 3) |

    The derivatives are those of the polynomials through [`adjoint_states`][] at Chebyshev–Lobatto
    nodes, the right sides vector–Jacobian products of the field there. The tolerance and the
    number of nodes limit how small the residuals are; a kink in the field leaves larger ones.

    **Arguments:** `loss`: a function of the state at `t1` that returns a scalar. `nodes`: how many,
    3 or more. `solve_options`: as for [`adjoint_states`][]; by default `rtol` and `atol` are 1e-12.
    """
    samples = _sample(dynamics, loss, y0, t0, t1, nodes, args, solve_options)
    return _residuals(dynamics, *samples, args, second_order=False)


def heavy_ball_residuals(
    dynamics: AbstractDynamics, loss: Loss, y0: PyTree, t0: ArrayLike, t1: ArrayLike,
    *, nodes: int = 24, args=None, **solve_options,
) -> AdjointResiduals:  # fmt: skip
    r"""How well the adjoint state satisfies a heavy-ball equation itself: the residual
    b'' − γb' − b (∂f/∂h − ξI) of b = ∂L/∂m, with ξ = 0 for an HBNODE (Prop. 1, eq. 11).

    It is b that satisfies it, for any loss. The proposition names a = ∂L/∂h, for which
    a'' − γa' − a ∂f/∂h = −b d(∂f/∂h)/dt: zero only where b sees a Jacobian constant in time.

    The arguments are those of [`adjoint_residuals`][], the dynamics an HBNODE or ungated GHBNODE.
    """
    ball = _heavy_ball(dynamics, "Prop. 1")
    if not is_identity(ball.gate):
        raise ValueError(
            "Prop. 1 does not hold for a GHBNODE whose gate is not the identity: its adjoint state "
            "satisfies no heavy-ball equation. Use adjoint_residuals, or gate=lambda m: m."
        )
    samples = _sample(dynamics, loss, y0, t0, t1, nodes, args, solve_options)
    return _residuals(ball, *samples, args, second_order=True)


def integrated_jacobian(
    dynamics: AbstractDynamics, y0: PyTree, t: ArrayLike, T: ArrayLike,
    *, nodes: int = 24, args=None, **solve_options,
) -> Float[Array, "size size"]:  # fmt: skip
    r"""The integral from T to t of the Jacobian ∂y'/∂y along the solution that starts in `y0` at
    the time t < T, by Gauss–Legendre quadrature. For a heavy ball it is the matrix of eq. 18,

    $$M = \int_T^t \begin{bmatrix} 0 & \partial\sigma/\partial m \\
      \partial f/\partial h - \xi I & -\gamma I \end{bmatrix} ds.$$

    So −M is the integral from t forwards to T. Where the Jacobians at different times commute,
    exp(−M) is ∂y(T)/∂y(t), as eqs. 17 and 18 say of every system; where they do not, only the
    determinants are sure to agree (exp(−Nγ(T − t)) for a heavy ball).

    **Arguments:** `y0`: the state of one sample; it is ravelled. `nodes`: how many quadrature
    nodes. `solve_options`: as for [`adjoint_states`][]; by default `rtol` and `atol` are 1e-10.
    """
    y0, span = _check_problem(dynamics, y0, t, T)
    options = {"rtol": 1e-10, "atol": 1e-10} | solve_options
    return _integrate_jacobian(dynamics, y0, span, args, _check_nodes(nodes, 1), options)


def paired_spectrum(
    dynamics: AbstractDynamics, y0: PyTree, t: ArrayLike, T: ArrayLike, **options
) -> Complex[Array, "N 2"]:
    r"""The 2N eigenvalues of −M in the pairs of Prop. 4, M being the [`integrated_jacobian`][] of
    an HBNODE or GHBNODE.

    With J and F the integrals from t to T of ∂σ/∂m and ∂f/∂h − ξI, and c = (t − T)γ ≤ 0,

    $$-M = \begin{bmatrix} 0 & J \\ F & cI \end{bmatrix}, \qquad
      \det(\lambda I + M) = \det\big(\lambda(\lambda - c) I - JF\big),$$

    so each eigenvalue μ of the N × N matrix JF gives a pair $c/2 \pm \sqrt{c^2/4 + \mu}$, whose sum
    is c = (t − T)γ. (The sums for M are −c, as at the end of the paper's proof.)

    The arguments are those of [`integrated_jacobian`][]. Each row of the result is a pair, the
    eigenvalue of larger real part first, which is never below [`slow_eigenvalue_bound`][].
    """
    _heavy_ball(dynamics, "Prop. 4")
    minus_m = -integrated_jacobian(dynamics, y0, t, T, **options)
    n = minus_m.shape[0] // 2
    mu = jnp.linalg.eigvals(minus_m[:n, n:] @ minus_m[n:, :n])
    half = minus_m[n, n].astype(mu.dtype) / 2
    root = jnp.sqrt(half**2 + mu)  # the principal root: its real part is not negative
    return jnp.stack([half + root, half - root], axis=1)


def slow_eigenvalue_bound(dynamics: AbstractDynamics, t: ArrayLike, T: ArrayLike) -> Array:
    r"""(t − T)γ/2: each pair of [`paired_spectrum`][] has a real part that is no smaller, since the
    two sum to (t − T)γ. For t < T and 0 ≤ γ ≤ 2a that is at least (t − T)a (after Prop. 4)."""
    gamma = _heavy_ball(dynamics, "Prop. 4").gamma
    t, T, gamma = (jnp.asarray(x, jnp.result_type(float)) for x in (t, T, gamma))
    return (t - T) * gamma / 2


@eqx.filter_jit
def _states_and_adjoints(dynamics, loss, y0, ts, args, options, last: bool):
    """The states at `ts` and the gradient of the loss, of them or of the last, in each of them."""

    def perturbed(jumps):
        ys = _states(dynamics, jumps, ts, args, options)
        return loss(jax.tree.map(lambda y: y[-1], ys) if last else ys), ys

    adjoints, ys = jax.grad(perturbed, has_aux=True)(_jumps(y0, ts))
    return ys, adjoints


def _states(dynamics, jumps, ts, args, options):
    """The states at `ts`, by one solve for each interval, with `jumps[k]` added at `ts[k]`."""

    def interval(y, inputs):
        span, jump = inputs
        ys = solve(dynamics, y, span, args=args, **options).ys
        y = jax.tree.map(lambda ys, jump: ys[-1] + jump, ys, jump)
        return y, y

    first, rest = (jax.tree.map(get, jumps) for get in (lambda x: x[0], lambda x: x[1:]))
    _, ys = jax.lax.scan(interval, first, (jnp.stack([ts[:-1], ts[1:]], axis=1), rest))
    return jax.tree.map(lambda y, ys: jnp.concatenate([y[None], ys]), first, ys)


def _jumps(y0, ts):
    """The start and no perturbation after it: y0, 0, 0, …"""
    return jax.tree.map(lambda y: jnp.zeros((ts.size, *y.shape), y.dtype).at[0].set(y), y0)


def _sample(dynamics, loss, y0, t0, t1, nodes, args, options):
    """Times, states and adjoint states at the Chebyshev–Lobatto nodes from t0 to t1."""
    y0, span = _check_problem(dynamics, y0, t0, t1)
    x = jnp.asarray(_lobatto(_check_nodes(nodes, 3)), span.dtype)
    ts = span[0] + (span[1] - span[0]) * (x + 1) / 2
    options = {"rtol": 1e-12, "atol": 1e-12} | options
    return ts, *_states_and_adjoints(dynamics, loss, y0, ts, args, options, last=True)


def _lobatto(nodes: int) -> np.ndarray:
    """The nodes −cos(kπ/n) in [−1, 1], exactly symmetric."""
    return np.sin(np.pi * np.arange(1 - nodes, nodes, 2) / (2 * nodes - 2))


def _differentiate(ts, values):
    """The derivatives at `ts` of the polynomials through the `values` there."""
    x, c = _lobatto(ts.size), (-1.0) ** np.arange(ts.size)
    c[[0, -1]] *= 2
    matrix = np.outer(c, 1 / c) / (x[:, None] - x + np.eye(ts.size))
    matrix -= np.diag(np.sum(matrix, axis=1))
    return jnp.tensordot(jnp.asarray(matrix, ts.dtype) * (2 / (ts[-1] - ts[0])), values, 1)


@eqx.filter_jit
def _residuals(dynamics, ts, ys, adjoints, args, second_order: bool) -> AdjointResiduals:
    def right_side(node):
        t, y, adjoint = node
        b = adjoint[1] if isinstance(y, tuple) else adjoint
        (b_df,) = jax.vjp(lambda y: dynamics.evaluate(t, y, args), y)[1](b)
        if not isinstance(y, tuple):
            return -b_df
        if isinstance(dynamics, SONODE):
            return -b_df[0], -adjoint[0] - b_df[1]
        ball = _heavy_ball(dynamics, "Prop. 3")
        (a_gate,) = jax.vjp(ball.gate, y[1])[1](adjoint[0])
        return cast_like(ball.xi, b) * b - b_df[0], cast_like(ball.gamma, b) * b - a_gate

    left = jax.tree.map(lambda x: _differentiate(ts, x), adjoints)
    right = jax.lax.map(right_side, (ts, ys, adjoints))
    if second_order:
        slope = left[1]
        left, right = _differentiate(ts, slope), cast_like(dynamics.gamma, ts) * slope - right[0]
    residuals = jax.tree.map(jnp.subtract, left, right)
    largest, scale = (jnp.max(jnp.abs(ravel_pytree(x)[0])) for x in (residuals, (left, right)))
    return AdjointResiduals(ts, adjoints, residuals, largest / jnp.where(scale > 0, scale, 1))


@eqx.filter_jit
def _integrate_jacobian(dynamics, y0, span, args, nodes, options):
    length = span[1] - span[0]
    x, weights = (jnp.asarray(v / 2, span.dtype) for v in np.polynomial.legendre.leggauss(nodes))
    ts = jnp.concatenate([span[:1], span[0] + length * (x + 0.5)])
    ys = _states(dynamics, _jumps(y0, ts), ts, args, options)
    unravel = ravel_pytree(y0)[1]

    def jacobian(node):
        def rate(z):
            y = unravel(z)
            return ravel_pytree(dynamics.rate(y, dynamics.evaluate(node[0], y, args)))[0]

        return jax.jacrev(rate)(ravel_pytree(node[1])[0])

    jacobians = jax.lax.map(jacobian, jax.tree.map(lambda x: x[1:], (ts, ys)))
    return -length * jnp.tensordot(weights, jacobians, 1)


def _heavy_ball(dynamics, claim: str) -> GHBNODE:
    """The dynamics as a GHBNODE with γ and ξ as numbers: for an HBNODE, ξ = 0 and no gate."""
    if isinstance(dynamics, HBNODE):
        dynamics = GHBNODE(dynamics.field, dynamics.gamma, 0.0, identity)
    if not isinstance(dynamics, GHBNODE):
        raise TypeError(f"{claim} needs an HBNODE or GHBNODE, got a {type(dynamics).__name__}.")
    return dynamics.resolve()


def _check_problem(dynamics, y0, *times):
    """The state and the times as arrays, or what is wrong with them."""
    check_dynamics(dynamics)
    dynamics.check_state(y0)
    y0 = jax.tree.map(jnp.asarray, tuple(y0) if isinstance(y0, list) else y0)
    dtype = jax.tree.leaves(y0)[0].dtype
    ts = times[0] if len(times) == 1 else jnp.stack([jnp.asarray(t, dtype) for t in times])
    return y0, check_times(ts, dtype)


def _check_nodes(nodes, least: int) -> int:
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < least:
        raise ValueError(f"`nodes` must be a whole number of {least} or more, got {nodes!r}.")
    return nodes

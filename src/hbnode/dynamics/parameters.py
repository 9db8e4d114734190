"""The two scalars of a heavy ball, γ and ξ, kept non-negative while they are learned."""

from __future__ import annotations

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float


def _as_float_array(x, name: str) -> Array:
    if jnp.ndim(x) != 0:
        raise ValueError(f"`{name}` must be a scalar, got an array of shape {jnp.shape(x)}.")
    dtype = jnp.result_type(x)
    # with a dtype, because a weakly typed leaf would make a training step compile twice
    return jnp.asarray(x, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


@final
class Damping(eqx.Module):
    r"""The learnable damping of a heavy ball,

    $$\gamma = \varepsilon \cdot \mathrm{sigmoid}(\omega),$$

    so that $0 < \gamma < \varepsilon$ whatever value $\omega$ takes (paper, section 2.2).

    **Arguments:** `omega`: where the trainable $\omega$ starts (the paper's −3 gives
    γ ≈ 0.047). `epsilon`: the fixed upper bound.

    ```python
    hbnode.HBNODE(field, gamma=hbnode.Damping(omega=-3.0, epsilon=1.0))
    ```
    """

    omega: Float[Array, ""]
    epsilon: float = eqx.field(static=True)

    def __init__(self, omega=-3.0, epsilon: float = 1.0):
        if not (np.isfinite(epsilon) and epsilon > 0):
            raise ValueError(
                f"`epsilon`, the upper bound of the damping, must be positive; got {epsilon}."
            )
        self.omega = _as_float_array(omega, "omega")
        self.epsilon = float(epsilon)

    def value(self) -> Float[Array, ""]:
        """The damping γ."""
        return self.epsilon * jax.nn.sigmoid(self.omega)


@final
class Restoring(eqx.Module):
    r"""The learnable restoring coefficient of a generalised heavy ball,

    $$\xi = \mathrm{softplus}(\chi) > 0,$$

    (paper, section 3).

    **Arguments:** `chi`: where the trainable $\chi$ starts (0 gives ξ = ln 2).
    """

    chi: Float[Array, ""]

    def __init__(self, chi=0.0):
        self.chi = _as_float_array(chi, "chi")

    def value(self) -> Float[Array, ""]:
        """The restoring coefficient ξ."""
        return jax.nn.softplus(self.chi)


def is_concrete(*values) -> bool:
    """Whether all values are known now, not only when the compiled program runs."""
    return not any(isinstance(x, Tracer) for x in values)


def check_coefficient(x, name: str, learnable: type):
    """Returns `x` as a `learnable`, a float (fixed) or a scalar array, or says what is wrong.

    A plain number stays a Python float, so that `equinox.is_inexact_array` does not select it
    and an optimiser leaves it alone. An array is a trainable leaf like any other.
    """
    if isinstance(x, learnable):
        return x
    if isinstance(x, (int, float, np.number)) and not isinstance(x, bool):
        number = x = float(x)
    elif isinstance(x, (jax.Array, np.ndarray)):
        number, x = x, _as_float_array(x, name)
    else:
        raise TypeError(
            f"`{name}` must be a number, a scalar array or hbnode.{learnable.__name__}(...); "
            f"got {x!r}."
        )
    # numpy, because inside jit even operations on known values are traced
    if is_concrete(number) and not (np.isfinite(np.asarray(number)) and np.asarray(number) >= 0):
        raise ValueError(
            f"`{name}` must be finite and not negative, got {float(number)}. To learn it under "
            f"that constraint pass {name}=hbnode.{learnable.__name__}(...)."
        )
    return x


def coefficient_value(x):
    """The number behind a `Damping`, a `Restoring`, a float or an array."""
    return x.value() if isinstance(x, (Damping, Restoring)) else x


def cast_like(x, like):
    """`x` in the precision of `like`, so that no state is silently promoted."""
    return jnp.asarray(x, dtype=like.dtype)

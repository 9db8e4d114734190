"""Errors that are only known at run time, raised with the time at which they happened."""

from __future__ import annotations

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .solution import RESULTS


def raise_on_failure(x: PyTree, result: RESULTS, t: Array, what: str) -> PyTree:
    """`x`, or a `RuntimeError` if `result` is not successful (of any sample, under `vmap`)."""
    fine = _check(result, t, what=what)
    # The values must depend on the callback, or the compiler leaves it out.
    return jax.tree.map(lambda leaf: jnp.where(fine, leaf, jnp.nan), x)


@eqx.filter_custom_jvp
def _check(result, t, *, what):
    failed = result != RESULTS.successful

    def host(result, t, failed):
        first = int(np.argmax(np.ravel(failed)))
        why = np.ravel(np.asarray(RESULTS[result]))[first]
        raise RuntimeError(f"hbnode: {what} failed at t = {np.ravel(t)[first]:.9g}. {why}")

    def fail():
        shape = jax.ShapeDtypeStruct(jnp.shape(failed), jnp.bool_)
        return jax.pure_callback(host, shape, result, t, failed, vmap_method="broadcast_all")

    return jax.lax.cond(eqxi.unvmap_any(failed), fail, lambda: jnp.ones_like(failed))


@_check.def_jvp
def _check_jvp(primals, tangents, *, what):
    return _check(*primals, what=what), None

"""Many seeds in one compiled program, shared out among the devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

AXIS = "seeds"


class Seeds:
    """Where the seeds of a run are computed.

    Every device has the same number of places; where there are more places than seeds, the last
    seed fills them up (see `filled`).
    """

    def __init__(self, seeds: Sequence[int], devices: Sequence[Any] | None = None):
        devices = list(jax.devices() if devices is None else devices)[: len(seeds)]
        self.seeds = list(seeds)
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.places = -(-len(seeds) // len(devices)) * len(devices)

    @property
    def filled(self) -> np.ndarray:
        """The seed of each place."""
        return np.array([*self.seeds, *[self.seeds[-1]] * (self.places - len(self.seeds))])

    @property
    def spare(self) -> np.ndarray:
        """Whether a place is there to fill up only."""
        return np.arange(self.places) >= len(self.seeds)

    def place(self, tree: PyTree, *, common: bool = False) -> PyTree:
        """The arrays on the devices: one place each along the leading axis, or `common` to all."""
        sharding = NamedSharding(self.mesh, PartitionSpec() if common else PartitionSpec(AXIS))
        return jax.device_put(tree, sharding)

    def map(self, function: Callable, separate: Sequence[bool]) -> Callable:
        """`function` of one seed as a function of all, to be compiled. `separate` says of each
        argument whether it has a leading axis of places or is common to all. Each device takes its
        seeds one after the other, so that no seed waits for the steps of another."""
        specs = tuple(PartitionSpec(AXIS) if s else PartitionSpec() for s in separate)

        def on_device(*args: Any):
            each = [arg for arg, s in zip(args, separate, strict=True) if s]

            def one(mine):
                rest = iter(mine)
                return function(
                    *(next(rest) if s else arg for arg, s in zip(args, separate, strict=True))
                )

            return jax.lax.map(one, each)

        return jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=specs,
            out_specs=PartitionSpec(AXIS),
            check_vma=False,
        )

    def gather(self, tree: PyTree) -> PyTree:
        """On the host, without the places that only fill up."""
        return jax.tree.map(lambda x: np.asarray(x)[: len(self.seeds)], tree)

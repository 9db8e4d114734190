"""The figures of each task, drawn from its runs. Each kind of figure has a module with a function
from runs to the figures that can be drawn of them, which may be none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import matplotlib

from ..load import Run
from ..plot import Plot
from ..style import RC
from .adjoint import adjoint_norms
from .curves import curves
from .descent import descent_paths, first_passages
from .forecasts import forecasts
from .growth import growth
from .snapshots import through_time, through_training
from .work import evaluations_by_error, evaluations_by_tolerance

Kind = Callable[[Sequence[Run]], Iterator[Plot]]

KINDS: dict[str, tuple[Kind, ...]] = {
    "descent": (descent_paths, first_passages),
    "silverbox": (growth,),
    "point-cloud": (
        curves, through_time, through_training, evaluations_by_tolerance, evaluations_by_error
    ),
    "mnist": (curves,),
    "cifar10": (curves, evaluations_by_tolerance),
    "plane-vibration": (curves, forecasts, adjoint_norms),
    "walker2d": (curves, forecasts, adjoint_norms),
}  # fmt: skip


def draw(task: str, runs: Sequence[Run]) -> list[Plot]:
    """All figures of a task that its runs have the data for."""
    plots: list[Plot] = []
    with matplotlib.rc_context(RC):
        for kind in KINDS[task]:
            try:
                plots += kind(runs)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # A report is made at the end of long work: what is in a file must not stop it.
                for run in runs:
                    run.tell(f"no {kind.__name__} of {task} can be drawn with it ({error!r}).")
    return plots

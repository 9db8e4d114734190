"""What each run brings to a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ..load import Run

T = TypeVar("T")


def gather(
    runs: Sequence[Run], file: str, extract: Callable[[Run, dict[str, np.ndarray]], T | None]
) -> list[tuple[Run, T]]:
    """Each run with what `extract` makes of one of its .npz files. A run without the file, whose
    arrays are not those of its task, or for which `extract` returns `None`, is left out."""
    found = []
    for run in runs:
        arrays = run.arrays(file)
        if arrays is None:
            continue
        try:
            value = extract(run, arrays)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            run.tell(f"{file} has not the arrays of {run.task} ({error!r}); it is not drawn.")
            continue
        if value is not None:
            found.append((run, value))
    return found


def first_good(run: Run, rows: int) -> int | None:
    """The first seed that did not diverge, out of those that have one of the `rows`."""
    return next((seed for seed in run.good if seed < rows), None)

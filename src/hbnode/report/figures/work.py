"""Evaluations of trained models: against the tolerance (Fig. 7), and against the error reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import colour, legend, line_style, log_axis, new_figure, plain_axis
from .gather import gather


def evaluations_by_tolerance(runs: Sequence[Run]) -> Iterator[Plot]:
    for direction in ("forward", "backward"):
        found = gather(runs, "closing.npz", lambda run, a, d=direction: _counts(run, a, d))
        if not found:
            continue
        figure, axes = new_figure(2.5)
        drawn = [run for run, _ in found]
        rows: list[list[Any]] = []
        for run, (tolerance, counts) in found:
            mean, std = _mean(counts), _std(counts)
            axes.plot(tolerance, mean, **line_style(run))
            if len(counts) > 1:
                axes.fill_between(
                    tolerance, np.fmax(mean - std, np.fmin.reduce(counts)),
                    np.fmin(mean + std, np.fmax.reduce(counts)),
                    color=colour(run.model), alpha=0.16, linewidth=0,
                )  # fmt: skip
            rows += rows_of(run, tolerance, mean, std, [len(counts)] * len(tolerance))
        axes.set_xscale("log")
        low = min(tolerance.min() for _, (tolerance, _) in found)
        log_axis(axes.xaxis, low, max(tolerance.max() for _, (tolerance, _) in found))
        axes.invert_xaxis()
        axes.set_ylim(bottom=0)
        plain_axis(axes.yaxis)
        axes.set_xlabel("tolerance")
        axes.set_ylabel(f"{direction} NFE")
        legend(figure, drawn)
        sign(figure, drawn)
        caption = (
            f"The trained models, solved again at each tolerance: {direction} evaluations of one "
            "batch. Mean over seeds; bands: standard deviation. The tolerance named below is that "
            "of the training."
        )
        header = ("model", "method", "tolerance", "mean", "std", "seeds")
        title = f"{direction.capitalize()} evaluations against tolerance"
        name = f"{drawn[0].task}-tolerance-{direction}"
        yield Plot(name, title, caption, drawn, figure, header, rows)


def _counts(run: Run, arrays: dict[str, np.ndarray], direction: str):
    """Tolerances from large to small, and the counts of each seed at them; NaN where a solve
    failed."""
    if not run.good:
        return None
    tolerance = arrays["tolerance"][run.good]
    counts = arrays[f"nfe_{direction}"][run.good].astype(float)
    order = np.argsort(-tolerance[0])
    counts = np.where(counts < 0, np.nan, counts)[:, order]
    some = np.isfinite(counts).any(axis=0)
    return (tolerance[0, order][some], counts[:, some]) if some.any() else None


def evaluations_by_error(runs: Sequence[Run]) -> Iterator[Plot]:
    found = gather(runs, "closing.npz", _errors)
    if not found:
        return
    figure, axes = new_figure(2.5)
    drawn = [run for run, _ in found]
    rows: list[list[Any]] = []
    for run, (tolerance, error, count) in found:
        axes.plot(error, count, **line_style(run))
        rows += rows_of(run, tolerance, error, count)
    every = np.concatenate([error for _, (_, error, _) in found])
    axes.set_xscale("log")
    log_axis(axes.xaxis, every.min(), every.max())
    axes.invert_xaxis()
    axes.set_ylim(bottom=0)
    plain_axis(axes.yaxis)
    axes.set_xlabel("error reached in h(1), root mean square")
    axes.set_ylabel("forward NFE")
    legend(figure, drawn)
    sign(figure, drawn)
    caption = (
        "What an error costs: the trained models, solved again at several tolerances, against a "
        "solution at the smallest. Geometric means of the errors and means of the evaluations "
        "over seeds. The tolerance named below is that of the training."
    )
    header = ("model", "method", "tolerance", "error", "nfe_forward")
    title = "Forward evaluations against the error reached"
    yield Plot(f"{drawn[0].task}-error", title, caption, drawn, figure, header, rows)


def _errors(run: Run, arrays: dict[str, np.ndarray]):
    """Tolerances from large to small, with the error and the evaluations there."""
    counted = _counts(run, arrays, "forward")
    if counted is None:
        return None
    tolerance, counts = counted
    all_of = arrays["tolerance"][run.good[0]].tolist()
    error = arrays["error"][run.good][:, [all_of.index(x) for x in tolerance.tolist()]]
    usable = np.isfinite(counts) & np.isfinite(error) & (error > 0)
    some = usable.any(axis=0)
    logs = np.where(usable, np.log10(np.where(usable, error, 1.0)), np.nan)[:, some]
    counts = np.where(usable, counts, np.nan)[:, some]
    if not some.any():
        return None
    return tolerance[some], 10 ** np.nanmean(logs, axis=0), np.nanmean(counts, axis=0)


def _mean(counts: np.ndarray) -> np.ndarray:
    return np.nanmean(counts, axis=0)


def _std(counts: np.ndarray) -> np.ndarray:
    found = np.isfinite(counts).sum(axis=0)
    squares = np.nansum((counts - _mean(counts)) ** 2, axis=0)
    return np.sqrt(squares / np.maximum(found - 1, 1))

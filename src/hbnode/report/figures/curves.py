"""Loss, accuracy, evaluations and time against epochs, with bands over seeds (Figs. 1, 5-9)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import colour, legend, line_style, mark_every, new_figure, plain_axis, scale_y

POINTS = 80
"""So many points a curve has at the most."""


class Measure(NamedTuple):
    """What a curve shows."""

    split: str
    name: str
    label: str
    title: str
    caption: str


MEASURES = (
    Measure("train", "loss", "training loss", "Training loss", "Mean over the updates in between."),
    Measure("full", "loss", "loss, all points", "Loss of all training points", ""),
    Measure("test", "loss", "test loss", "Test loss", ""),
    Measure(
        "test", "forecast_mse", "test forecast MSE", "Test error of the forecasts",
        "Mean squared error of normalised values."
    ),
    Measure("test", "accuracy", "test accuracy", "Test accuracy", ""),
    Measure(
        "train", "nfe_forward", "forward NFE", "Forward evaluations",
        "Evaluations of the field on a whole batch in one forward pass; mean over updates."
    ),
    Measure(
        "train", "nfe_backward", "backward NFE", "Backward evaluations",
        "Evaluations of the field with its vector–Jacobian product, or to take a state again, in "
        "one backward pass; mean over updates."
    ),
)  # fmt: skip


class Band(NamedTuple):
    """Mean over seeds, and mean ∓ standard deviation cut to the range of the seeds."""

    epochs: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int


def curves(runs: Sequence[Run]) -> Iterator[Plot]:
    for measure in MEASURES:
        found = [(run, band) for run in runs if (band := _band(run, measure)) is not None]
        if found:
            yield _draw(measure, found)
    timed = [(run, line) for run in runs if (line := _seconds(run)) is not None]
    if timed:
        yield _draw_time(timed)


def series(run: Run, split: str, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Epochs, and the values of each seed that did not diverge: from the history of all updates
    where there is one, in bins, otherwise from the lines of metrics.jsonl."""
    if split == "train" and run.finished:
        found = _binned(run, name)
        if found is not None:
            return found
    lines = [x for x in run.lines if x["split"] == split and isinstance(x.get(name), (int, float))]
    steps = sorted({line["step"] for line in lines})
    if not steps or not run.good:
        return None
    values = np.full((len(run.good), len(steps)), np.nan)
    places = {seed: i for i, seed in enumerate(run.good)}
    for line in lines:
        if line["seed"] in places:
            values[places[line["seed"]], steps.index(line["step"])] = line[name]
    epochs = np.array(steps) / (run.updates_per_epoch or 1)
    few = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), POINTS)).round().astype(int))
    return epochs[few], values[:, few]


def _binned(run: Run, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    history = (run.arrays("history.npz") or {}).get(name)
    if history is None or history.ndim != 2 or len(history) != run.seeds or not run.good:
        return None
    good = history[run.good].astype(float)
    edges = np.linspace(0, good.shape[1], min(good.shape[1], POINTS) + 1).round().astype(int)
    bins = [good[:, a:b].mean(axis=1) for a, b in itertools.pairwise(edges)]
    return edges[1:] / (run.updates_per_epoch or 1), np.stack(bins, axis=1)


def _band(run: Run, measure: Measure) -> Band | None:
    found = series(run, measure.split, measure.name)
    if found is None or not np.isfinite(found[1]).any():
        return None
    epochs, values = found
    there = np.isfinite(values).any(axis=0)
    epochs, values = epochs[there], values[:, there]
    if epochs.size < 2:
        return None
    mean = np.nanmean(values, axis=0)
    counted = np.isfinite(values).sum(axis=0)
    squares = np.nansum((values - mean) ** 2, axis=0)
    std = np.sqrt(squares / np.maximum(counted - 1, 1))
    low = np.maximum(mean - std, np.nanmin(values, axis=0))
    high = np.minimum(mean + std, np.nanmax(values, axis=0))
    return Band(epochs, mean, std, low, high, len(values))


def _draw(measure: Measure, found: list[tuple[Run, Band]]) -> Plot:
    figure, axes = new_figure(2.5)
    runs = [run for run, _ in found]
    rows: list[list[Any]] = []
    for run, band in found:
        axes.plot(band.epochs, band.mean, **line_style(run), markevery=mark_every(band.epochs.size))
        if band.seeds > 1:
            axes.fill_between(band.epochs, band.low, band.high, color=colour(run.model), alpha=0.16,
                              linewidth=0)  # fmt: skip
        rows += rows_of(run, band.epochs, band.mean, band.std, [band.seeds] * band.epochs.size)
    values = np.concatenate([band.mean for _, band in found])
    lows = np.concatenate([band.low for _, band in found])
    log = "loss" in measure.name or measure.name.endswith("mse")
    log &= bool(lows.min() > 0 and values.max() > 10 * values.min())
    scale_y(axes, values, log=log)
    axes.set_xlabel("epoch")
    axes.set_ylabel(measure.label)
    plain_axis(axes.xaxis)
    legend(figure, runs)
    sign(figure, runs)
    several = any(band.seeds > 1 for _, band in found)
    bands = "Mean over seeds; bands: standard deviation, within the range of the seeds."
    caption = " ".join(filter(None, (measure.caption, bands * several)))
    name = f"{runs[0].task}-{measure.split}-{measure.name}".replace("_", "-")
    header = ("model", "method", "epoch", "mean", "std", "seeds")
    return Plot(name, measure.title, caption, runs, figure, header, rows)


def _seconds(run: Run) -> tuple[np.ndarray, np.ndarray] | None:
    """Epochs, and seconds of training until then shared out evenly among the seeds."""
    told = {
        line["step"]: line["seconds"] / run.seeds
        for line in run.lines
        if isinstance(line.get("seconds"), (int, float))
    }
    if len(told) < 2:
        return None
    steps = np.array(sorted(told))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), POINTS)).astype(int))]
    return steps / (run.updates_per_epoch or 1), np.array([told[step] for step in steps])


def _draw_time(found: list[tuple[Run, tuple[np.ndarray, np.ndarray]]]) -> Plot:
    figure, axes = new_figure(2.5)
    runs = [run for run, _ in found]
    rows: list[list[Any]] = []
    for run, (epochs, seconds) in found:
        axes.plot(epochs, seconds, **line_style(run), markevery=mark_every(epochs.size))
        rows += rows_of(run, epochs, seconds)
    axes.set_xlabel("epoch")
    axes.set_ylabel("training time (s)")
    plain_axis(axes.xaxis)
    plain_axis(axes.yaxis)
    axes.set_ylim(bottom=0)
    legend(figure, runs)
    sign(figure, runs)
    caption = (
        "Seconds of training, compilation and evaluations aside. All seeds train at once; their "
        "time is shared out evenly among them."
    )
    header = ("model", "method", "epoch", "seconds")
    name = f"{runs[0].task}-seconds"
    return Plot(name, "Training time", caption, runs, figure, header, rows)

"""Forecast curves against the truth (Figs. 8 and 9, first panels)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import INK, legend, line_style, mark_every, new_figure, plain_axis
from .gather import first_good, gather


class Channel(NamedTuple):
    """One of the measured quantities."""

    column: int
    label: str


CHANNELS = {
    "plane-vibration": (
        Channel(2, "acceleration 1"), Channel(3, "acceleration 2"), Channel(4, "acceleration 3")
    ),
    "walker2d": (Channel(0, "channel 1"), Channel(2, "channel 3"), Channel(8, "channel 9")),
}  # fmt: skip
STAMPS = 32
"""So many of the last stamps are shown before the forecast."""


class Window(NamedTuple):
    """One window of the test set. `truth`, `outputs`: at `ts`. `ahead`, `forecast`: at `horizons`,
    empty where only the next stamp is predicted."""

    seed: int
    ts: np.ndarray
    truth: np.ndarray
    outputs: np.ndarray
    horizons: np.ndarray
    ahead: np.ndarray
    forecast: np.ndarray


def forecasts(runs: Sequence[Run]) -> Iterator[Plot]:
    found = gather(runs, "closing.npz", _window)
    if not found:
        return
    channels = CHANNELS[found[0][0].task]
    figure, panels = new_figure(1.15 * len(channels) + 0.8, len(channels), 1, sharex=True)
    drawn = [run for run, _ in found]
    rows: list[list[Any]] = []
    for axes, channel in zip(panels, channels, strict=True):
        rows += _panel(axes, channel, found)
    panels[-1].set_xlabel("time")
    plain_axis(panels[-1].xaxis)
    truth = Line2D([], [], color=INK, linewidth=1.0, marker=".", markersize=3, label="truth")
    legend(figure, drawn, more=[truth])
    sign(figure, drawn)
    seeds = sorted({window.seed for _, window in found})
    caption = f"The first window of the test set, seed {', '.join(map(str, seeds))}. "
    if found[0][1].horizons.size:
        caption += (
            "Before the vertical line each model predicts the next stamp from those it has seen; "
            "after it, it has seen nothing more."
        )
    else:
        caption += "Each model predicts the next stamp from those it has seen."
    header = ("model", "method", "seed", "channel", "part", "time", "truth", "predicted")
    title = "Forecasts and the truth" if found[0][1].horizons.size else "Predictions and the truth"
    yield Plot(f"{drawn[0].task}-forecasts", title, caption, drawn, figure, header, rows)


def _panel(axes: Any, channel: Channel, found: list[tuple[Run, Window]]) -> list[list[Any]]:
    i = channel.column
    first = found[0][1]
    shown = np.concatenate([first.truth[-STAMPS:, i], first.ahead[:, i]])
    times = np.concatenate([first.ts[-STAMPS:], first.horizons])
    axes.plot(times, shown, color=INK, linewidth=1.0, marker=".", markersize=3, zorder=1.5)
    if first.horizons.size:
        axes.axvline((first.ts[-1] + first.horizons[0]) / 2, color=INK, linewidth=0.6, alpha=0.5)
    rows: list[list[Any]] = []
    for run, window in found:
        values = np.concatenate([window.outputs[-STAMPS:, i], window.forecast[:, i]])
        style = line_style(run) | {"linewidth": 1.0, "markersize": 2.8}
        axes.plot(times, values, **style, markevery=mark_every(values.size), alpha=0.9)
        for part, ts, truth, predicted in (
            ("next stamp", window.ts, window.truth, window.outputs),
            ("forecast", window.horizons, window.ahead, window.forecast),
        ):
            n = len(ts)
            rows += rows_of(run, [window.seed] * n, [channel.label] * n, [part] * n, ts,
                            truth[:, i], predicted[:, i])  # fmt: skip
    # A prediction may be far off; the truth stays readable.
    low, high = np.nanmin(shown), np.nanmax(shown)
    margin = 1.0 * max(high - low, 1e-9)
    axes.set_ylim(max(axes.get_ylim()[0], low - margin), min(axes.get_ylim()[1], high + margin))
    axes.set_ylabel(channel.label)
    plain_axis(axes.yaxis)
    axes.margins(x=0.02)
    return rows


def _window(run: Run, arrays: dict[str, np.ndarray]) -> Window | None:
    context = run.arrays("context.npz")
    if context is None:
        return None
    outputs = arrays["outputs"]
    seed = first_good(run, min(len(outputs), len(context["targets"])))
    if seed is None:
        return None
    ts = np.cumsum(context["gaps"][seed, 0])
    truth, predicted = context["targets"][seed, 0], outputs[seed, 0]
    if truth.shape != predicted.shape or len(ts) != len(truth):
        raise ValueError(f"outputs have the shape {outputs.shape}")
    nothing = np.zeros((0, truth.shape[1]))
    horizons, ahead, forecast = np.zeros(0), nothing, nothing
    if "forecasts" in arrays:
        start = ts[-1] - context["gaps"][seed, 0, -1]
        # The first row of the forecast is the last target.
        horizons = (start + context["horizons"][seed, 0])[1:]
        ahead, forecast = context["forecast"][seed, 0, 1:], arrays["forecasts"][seed, 0, 1:]
    return Window(seed, ts, truth, predicted, horizons, ahead, forecast)

"""Growth of ‖h(t)‖ before training, beside the signal that drives it (Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import INK, colour, legend, line_style, log_axis, mark_every, new_figure, plain_axis
from .gather import gather

DOTS = (0, (2, 1.4))


def growth(runs: Sequence[Run]) -> Iterator[Plot]:
    def extract(run: Run, arrays: dict[str, np.ndarray]):
        if not run.good:
            return None
        norms = arrays["norms"][run.good]
        if norms.shape[1:] != arrays["ts"].shape:
            raise ValueError(f"norms have the shape {norms.shape}")
        return arrays["ts"], norms, arrays["signal_ts"], arrays["signal"]

    found = gather(runs, "arrays.npz", extract)
    if not found:
        return
    figure, (top, axes) = new_figure(3.3, 2, 1, sharex=True, height_ratios=(1, 2.6))
    drawn = [run for run, _ in found]
    ts, _, signal_ts, signal = found[0][1]
    top.plot(signal_ts, signal[:, 0], color=INK, linewidth=0.9)
    top.plot(signal_ts, signal[:, 1], color=INK, linewidth=0.9, linestyle=DOTS)
    top.set_ylabel("signal")
    plain_axis(top.yaxis)
    rows: list[list[Any]] = []
    for run, (ts, norms, _, _) in found:
        mean = norms.mean(axis=0)
        quarters = np.quantile(norms, [0.25, 0.5, 0.75], axis=0)
        axes.plot(ts, mean, **line_style(run), markevery=mark_every(ts.size))
        if len(norms) > 3:
            axes.fill_between(
                ts, quarters[0], quarters[2], color=colour(run.model), alpha=0.16, linewidth=0
            )
        rows += rows_of(run, ts, mean, *quarters, [len(norms)] * ts.size)
    axes.set_yscale("log")
    log_axis(axes.yaxis, *axes.get_ylim())
    axes.set_xlabel("t")
    axes.set_ylabel("‖h(t)‖")
    plain_axis(axes.xaxis)
    axes.margins(x=0.01)
    measured = [
        Line2D([], [], color=INK, linewidth=0.9, label="input V₁"),
        Line2D([], [], color=INK, linewidth=0.9, linestyle=DOTS, label="output V₂"),
    ]
    legend(figure, drawn, more=measured)
    sign(figure, drawn)
    caption = (
        "Above: what was measured, which drives the models. Below: ‖h(t)‖ before any training, "
        "mean over seeds; bands: the middle half of the seeds, which a mean of so different "
        "numbers can lie above."
    )
    header = ("model", "method", "t", "mean", "quarter", "median", "three_quarters", "seeds")
    title = "Growth of ‖h(t)‖ before training"
    yield Plot(f"{drawn[0].task}-growth", title, caption, drawn, figure, header, rows)

"""How all figures look: one colour and one marker for each model, sizes for a column of a paper.

The colours are out of the palette of Okabe and Ito, which readers with any colour blindness tell
apart, and the markers tell the models apart in grey. A line is dashed where a run took another
method than the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from .load import Run
from .text import tick

COLOURS = {
    "NODE": "#d55e00", "ANODE": "#cc79a7", "SONODE": "#009e73", "HBNODE": "#0072b2",
    "GHBNODE": "#56b4e9",
}  # fmt: skip
MARKERS = {"NODE": "o", "ANODE": "s", "SONODE": "^", "HBNODE": "D", "GHBNODE": "v"}
OTHER = "#8a8a8a"
# Text, axes and what was measured. No data have this colour, so that the page can put the colour
# of its own text in the place of it.
INK = "#1a1b1c"
CLASSES = ("#e69f00", INK)
WIDTH = 3.4  # inches: one column
NOTE = 5.6
NOTE_CHARACTERS = 76

RC: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 7.5,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.6,
    "lines.solid_capstyle": "round",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.2,
    "legend.borderaxespad": 0.5,
    "legend.borderpad": 0.0,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.13,
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "hbnode",
    "svg.image_inline": True,
    "pdf.fonttype": 42,
}


def colour(model: str) -> str:
    return COLOURS.get(model, OTHER)


def line_style(run: Run) -> dict[str, Any]:
    """How the line of a run is drawn, everywhere."""
    return {
        "color": colour(run.model),
        "marker": MARKERS.get(run.model, "P"),
        "linestyle": "-" if run.method == "paper" else (0, (3, 1.4)),
        "markerfacecolor": colour(run.model) if run.method == "paper" else "none",
    }


def new_figure(
    height: float,
    rows: int = 1,
    columns: int = 1,
    *,
    pads: tuple[float, float] = (0.06, 0.07),
    spaces: float = 0.03,
    **more: Any,
) -> tuple[Figure, Any]:
    """A figure one column wide, and its axes. `pads`: around each of the axes, in inches, to the
    sides and above. `spaces`: between them, in parts of their sizes."""
    layout = ConstrainedLayoutEngine(w_pad=pads[0], h_pad=pads[1], wspace=spaces, hspace=spaces)
    figure = Figure(figsize=(WIDTH, height), layout=layout)
    return figure, figure.subplots(rows, columns, **more)


def mark_every(count: int) -> tuple[int, int] | int:
    """About six markers on a line of `count` points."""
    return max(1, math.ceil(count / 6))


def legend(figure: Figure, runs: Sequence[Run], *, more: Sequence[Line2D] = ()) -> None:
    """One for the whole figure, above it."""
    handles = [Line2D([], [], label=run.label, **line_style(run)) for run in runs]
    handles += more
    columns = 3 if len(handles) > 4 or any(len(run.label) > 8 for run in runs) else len(handles)
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def log_axis(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis from `low` to `high` with at most six labels; over a range that holds
    less than two powers of ten the numbers between are labelled, too."""
    axis.set_tick_params(which="minor", length=1.5)
    decades = math.log10(high / low) if high > low > 0 else 1.0
    axis.set_major_locator(LogLocator(base=10.0, numticks=6))
    axis.set_major_formatter(FuncFormatter(tick))
    inside = math.floor(math.log10(high)) - math.ceil(math.log10(low)) + 1 if low > 0 else 2
    if inside < 2 and decades < 2:
        axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0), numticks=8))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.3g}"))
    if decades > 3:
        axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def plain_axis(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def scale_y(axes: Axes, values: np.ndarray, *, log: bool) -> None:
    """Ticks of the vertical axis for what is drawn on it."""
    values = values[np.isfinite(values)]
    if log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        log_axis(axes.yaxis, low, high)
    else:
        plain_axis(axes.yaxis)
        if values.size and values.min() == values.max():
            axes.set_ylim(0, 1.25 * values.max() or 1)

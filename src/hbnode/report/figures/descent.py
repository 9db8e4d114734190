"""Gradient flow and heavy-ball flow on two test functions of optimisation (Fig. 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import INK, WIDTH, colour, legend, line_style, log_axis, new_figure, plain_axis
from .gather import gather


class Surface(NamedTuple):
    """What the contours are of."""

    title: str
    function: Callable[[np.ndarray, np.ndarray], np.ndarray]
    minimum: tuple[float, float]


def _beale(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    constants = np.array([1.5, 2.25, 2.625])[:, None, None]
    powers = np.stack([y, y**2, y**3])
    return ((constants - x * (1 - powers)) ** 2).sum(axis=0)


SURFACES = {
    "rosenbrock": Surface(
        "Rosenbrock", lambda x, y: (1 - x) ** 2 + 100 * (y - x**2) ** 2, (1.0, 1.0)
    ),
    "beale": Surface("Beale", _beale, (3.0, 0.5)),
}
FLOWS = {"NODE": "gradient flow", "HBNODE": "heavy-ball flow"}


def descent_paths(runs: Sequence[Run]) -> Iterator[Plot]:
    for name, surface in SURFACES.items():

        def extract(run: Run, arrays: dict[str, np.ndarray], name: str = name):
            path = arrays[f"{name}_path"]
            if path.ndim != 2 or path.shape[1] != 2:
                raise ValueError(f"{name}_path has the shape {path.shape}")
            return arrays[f"{name}_ts"], path, arrays[f"{name}_values"]

        found = gather(runs, "arrays.npz", extract)
        if found:
            yield _paths(name, surface, found)


def _paths(name: str, surface: Surface, found: list) -> Plot:
    runs = [run for run, _ in found]
    points = np.concatenate([path for _, (_, path, _) in found] + [np.array([surface.minimum])])
    points = points[np.isfinite(points).all(axis=1)]
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.12 * (high - low).max()
    wide, tall = high - low + 2 * margin
    figure, axes = new_figure(float(np.clip(0.8 + (WIDTH - 0.6) * tall / wide, 2.0, 3.3)))
    x, y = np.meshgrid(
        np.linspace(low[0] - margin, high[0] + margin, 160),
        np.linspace(low[1] - margin, high[1] + margin, 160),
    )
    values = np.maximum(surface.function(x, y), 1e-9)
    levels = np.geomspace(np.quantile(values, 0.002), values.max(), 14)
    axes.contour(x, y, values, levels=levels, colors=INK, alpha=0.3, linewidths=0.5)
    rows: list[list[Any]] = []
    for run, (ts, path, value) in found:
        style = line_style(run) | {"markerfacecolor": colour(run.model)}
        axes.plot(path[:, 0], path[:, 1], **style, markevery=max(1, len(path) // 10))
        few = np.unique(np.linspace(0, len(path) - 1, min(len(path), 201)).round().astype(int))
        rows += rows_of(run, ts[few], path[few, 0], path[few, 1], value[few])
    axes.plot(*surface.minimum, "*", color=INK, markersize=8, zorder=5)
    axes.plot(0, 0, "o", markerfacecolor="none", markeredgecolor=INK, markersize=5, zorder=5)
    axes.set_xlabel("x₁")
    axes.set_ylabel("x₂")
    axes.set_aspect("equal")
    axes.grid(visible=False)
    plain_axis(axes.xaxis)
    plain_axis(axes.yaxis)
    handles = [
        Line2D([], [], label="start", marker="o", color=INK, markerfacecolor="none", ls="none"),
        Line2D([], [], label="minimum", marker="*", color=INK, ls="none", markersize=6),
    ]
    legend(figure, runs, more=handles)
    sign(figure, runs)
    end = max(float(ts[-1]) for _, (ts, _, _) in found)
    caption = (
        f"From rest in the origin by {' and '.join(f'{FLOWS[m]} ({m})' for m in FLOWS)}, "
        f"t from 0 to {end:g}, steps of a fixed size; a marker each tenth of the time."
    )
    header = ("model", "method", "t", "x1", "x2", "value")
    title = f"Descent on the function of {surface.title}"
    return Plot(f"{runs[0].task}-{name}", title, caption, runs, figure, header, rows)


def first_passages(runs: Sequence[Run]) -> Iterator[Plot]:
    """When the paths first come near the minimum."""

    def extract(run: Run, arrays: dict[str, np.ndarray]):
        return arrays["near"], {name: arrays[f"{name}_first_passage"] for name in SURFACES}

    found = gather(runs, "arrays.npz", extract)
    if not found:
        return
    figure, panels = new_figure(2.3, 1, len(SURFACES), sharey=True)
    drawn = [run for run, _ in found]
    rows: list[list[Any]] = []
    for axes, (name, surface) in zip(panels, SURFACES.items(), strict=True):
        for run, (near, times) in found:
            reached = np.isfinite(times[name])
            axes.plot(near[reached], times[name][reached], **line_style(run))
            rows += rows_of(run, [name] * len(near), near, times[name])
        axes.set(xscale="log", yscale="log", xlabel="distance")
        axes.set_title(surface.title)
        near = found[0][1][0]
        log_axis(axes.xaxis, near.min(), near.max())
        axes.set_xlim(near.max() * 1.4, near.min() / 1.4)
    panels[0].set_ylabel("first time within")
    log_axis(panels[0].yaxis, *panels[0].get_ylim())
    legend(figure, drawn)
    sign(figure, drawn)
    caption = (
        "The time t at which a path first comes within a distance of the minimum, step size under "
        "control. A path that does not come so near in the time given has no point there."
    )
    header = ("model", "method", "function", "distance", "t")
    title = "Time until near the minimum"
    yield Plot(f"{drawn[0].task}-passages", title, caption, drawn, figure, header, rows)

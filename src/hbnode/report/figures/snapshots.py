"""How the point cloud moves: through t in the trained model, and through training (Fig. 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..load import Run
from ..plot import Plot, sign
from ..style import CLASSES, INK, colour, new_figure
from .gather import first_good, gather

COLUMNS = 5


def through_time(runs: Sequence[Run]) -> Iterator[Plot]:
    """Positions at some times, of the trained model."""

    def extract(run: Run, arrays: dict[str, np.ndarray]):
        cloud = _cloud(run, arrays)
        if cloud is None:
            return None
        positions, targets, times, _, seed = cloud
        picked = _spread(len(times))
        return positions[-1][picked], targets, times[picked], seed

    found = gather(runs, "snapshots.npz", extract)
    caption = (
        "The points of both classes on their way through the trained model, the first two "
        "coordinates of h(t)."
    )
    yield from _grid(found, "t", "The cloud through t", caption, "cloud-time")


def through_training(runs: Sequence[Run]) -> Iterator[Plot]:
    """Positions at t = 1 at some evaluations."""

    def extract(run: Run, arrays: dict[str, np.ndarray]):
        cloud = _cloud(run, arrays)
        if cloud is None:
            return None
        positions, targets, _, steps, seed = cloud
        picked = _spread(len(steps))
        epochs = steps[picked] / (run.updates_per_epoch or 1)
        return positions[picked][:, -1], targets, epochs, seed

    found = gather(runs, "snapshots.npz", extract)
    caption = "Where the points of both classes end, at t = 1, as training goes on."
    yield from _grid(found, "epoch", "The cloud through training", caption, "cloud-training")


def _cloud(run: Run, arrays: dict[str, np.ndarray]):
    """positions [snapshot, time, point, 2], targets, times, steps of the snapshots, seed."""
    context = run.arrays("context.npz")
    if context is None:
        return None
    positions = arrays["positions"]
    seed = first_good(run, len(positions))
    if seed is None:
        return None
    cloud = positions[seed, ..., :2]
    if cloud.shape[1:3] != (context["times"].shape[-1], context["targets"].shape[-1]):
        raise ValueError(f"positions have the shape {positions.shape}")
    return cloud, context["targets"][seed], context["times"][seed], arrays["steps"], seed


def _spread(count: int) -> np.ndarray:
    """About `COLUMNS` indices, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(COLUMNS, count)).round().astype(int))


def _grid(found: list, variable: str, title: str, caption: str, name: str) -> Iterator[Plot]:
    """A row for each run, a column for each value of the variable."""
    if not found:
        return
    runs = [run for run, _ in found]
    columns = max(len(values) for _, (_, _, values, _) in found)
    figure, axes = new_figure(
        0.67 * len(found) + 0.7, len(found), columns, pads=(0.015, 0.05), spaces=0.0, squeeze=False
    )
    rows: list[list[Any]] = []
    for line, (run, (clouds, targets, values, seed)) in zip(axes, found, strict=True):
        for panel in line[len(clouds) :]:
            panel.set_axis_off()
        for panel, cloud, value in zip(line, clouds, values, strict=False):
            for sign_of, shade, marker in ((-1, CLASSES[0], "o"), (1, CLASSES[1], "x")):
                mine = cloud[targets == sign_of]
                panel.plot(mine[:, 0], mine[:, 1], marker, color=shade, markersize=1.5,
                           markeredgewidth=0.45, markerfacecolor=shade)  # fmt: skip
            center, reach = _frame(cloud)
            panel.set(xlim=center[0] + reach, ylim=center[1] + reach, xticks=[], yticks=[])
            panel.set_aspect("equal")
            for spine in panel.spines.values():
                spine.set(visible=True, alpha=0.25)
            panel.set_title(f"{variable} = {value:.3g}", fontsize=6.2, pad=2)
            rows += [
                [run.model, run.method, seed, value, point, x, y, int(target)]
                for point, ((x, y), target) in enumerate(zip(cloud, targets, strict=True))
            ]
        line[0].set_ylabel(
            run.label.replace(" ", "\n"), color=colour(run.model), fontsize=7, weight="bold"
        )
    figure.legend(
        handles=[
            axes[0, 0].plot([], [], marker, color=shade, markersize=3, label=label)[0]
            for shade, marker, label in ((CLASSES[0], "o", "disc"), (CLASSES[1], "x", "ring"))
        ],
        loc="outside upper left", ncols=2, labelcolor=INK,
    )  # fmt: skip
    sign(figure, runs)
    seeds = sorted({seed for _, (_, _, _, seed) in found})
    caption += f" Seed {', '.join(map(str, seeds))}; each panel has a scale of its own."
    header = ("model", "method", "seed", variable, "point", "x", "y", "target")
    yield Plot(f"{runs[0].task}-{name}", title, caption, runs, figure, header, rows)


def _frame(cloud: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Center, and −/+ half the side, of a square with all points."""
    points = cloud[np.isfinite(cloud).all(axis=1)]
    if not points.size:
        return np.zeros(2), np.array([-1.0, 1.0])
    low, high = points.min(axis=0), points.max(axis=0)
    half = 0.55 * max((high - low).max(), 1e-9)
    return (low + high) / 2, np.array([-half, half])

"""Heat maps of the norm of the adjoint state over time stamp and epoch (Fig. 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from ..load import Run
from ..plot import Plot, rows_of, sign
from ..style import colour, log_axis, new_figure, plain_axis
from .gather import gather

ROWS = 60
"""So many epochs are shown at the most."""
DECADES = 10
"""Norms that are smaller than the largest by more than this are shown alike."""


def adjoint_norms(runs: Sequence[Run]) -> Iterator[Plot]:
    found = gather(runs, "snapshots.npz", _norms)
    if not found:
        return
    drawn = [run for run, _ in found]
    figure, panels = new_figure(0.95 * len(found) + 0.75, len(found), 1, sharex=True, squeeze=False)
    every = np.concatenate([norms.ravel() for _, (_, norms) in found])
    every = every[np.isfinite(every)]
    high = every.max()
    low = max(every.min(), high / 10**DECADES)
    norm = LogNorm(low, high)
    rows: list[list[Any]] = []
    image = None
    for axes, (run, (epochs, norms)) in zip(panels[:, 0], found, strict=True):
        stamps = norms.shape[1]
        half = (epochs[-1] - epochs[0]) / max(len(epochs) - 1, 1) / 2 or 0.5
        image = axes.imshow(
            np.clip(norms, low, high), norm=norm, cmap="cividis", aspect="auto",
            origin="lower", interpolation="nearest",
            extent=(0.5, stamps + 0.5, epochs[0] - half, epochs[-1] + half),
        )  # fmt: skip
        axes.grid(visible=False)
        axes.set_title(run.label, color=colour(run.model), fontsize=7.5, weight="bold", pad=2)
        axes.set_ylabel("epoch")
        plain_axis(axes.yaxis)
        rows += rows_of(run, epochs, *norms.T)
    panels[-1, 0].set_xlabel("time stamp")
    assert image is not None
    bar = figure.colorbar(image, ax=panels[:, 0].tolist(), aspect=30, pad=0.02)
    bar.set_label("norm of the adjoint state")
    log_axis(bar.ax.yaxis, low, high)
    bar.outline.set_visible(False)
    sign(figure, drawn)
    caption = (
        "The norm of the adjoint state carried back from the last stamp to each stamp, geometric "
        "mean over seeds; bright: what happens at a stamp still reaches the loss. One scale for "
        "all models."
    )
    stamps = max(norms.shape[1] for _, (_, norms) in found)
    header = ("model", "method", "epoch", *(f"stamp_{i}" for i in range(1, stamps + 1)))
    title = "Norm of the adjoint over time stamp and epoch"
    yield Plot(f"{drawn[0].task}-adjoint", title, caption, drawn, figure, header, rows)


def _norms(run: Run, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Epochs, and norms [epoch, stamp]."""
    norms = arrays["adjoint_norms"]
    good = [seed for seed in run.good if seed < len(norms)]
    if not good:
        return None
    if norms.ndim != 3 or norms.shape[1] != len(arrays["steps"]):
        raise ValueError(f"adjoint_norms have the shape {norms.shape}")
    usable = np.isfinite(norms[good]) & (norms[good] > 0)
    if not usable.any():
        return None
    smallest = norms[good][usable].min()  # stands for what was too small for a number
    logs = np.log10(np.where(usable, norms[good], smallest)).mean(axis=0)
    few = np.unique(np.linspace(0, len(logs) - 1, min(len(logs), ROWS)).round().astype(int))
    return arrays["steps"][few] / (run.updates_per_epoch or 1), 10.0 ** logs[few]

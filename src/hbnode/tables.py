"""The tables that the command line prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax

from .experiments import EXPERIMENTS, build, preset
from .launch import Run
from .models import count_parameters
from .tasks import AbstractTask


def columns(rows: Sequence[Sequence[str]], right: str) -> str:
    """Aligned columns under a rule; `right` has an r for each column that is flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(lines)


def list_table() -> str:
    rows = [("task", "figures", "models", "seeds", "data", "what")]
    for name, e in EXPERIMENTS.items():
        models = " ".join(e.models) + (f" ({' '.join(e.others)})" if e.others else "")
        rows.append((name, e.figures, models, str(e.seeds), e.dataset or "made", e.title))
    table = columns(rows, "lllrll")
    return (
        f"{table}\n\nPresets: quick, paper. Methods: paper, fast. Models in brackets are left out "
        "of `compare` unless named."
    )


def parameters(task: str, model: str) -> int:
    """How many numbers a model of the paper's sizes learns."""
    made = build(task, model, preset(task, model, "paper", "paper"))
    assert isinstance(made, AbstractTask)
    return count_parameters(eqx.filter_eval_shape(made.model, jax.random.key(0)))


def parameter_table(tasks: Sequence[str]) -> str:
    rows: list[tuple[str, ...]] = [("task", "model", "parameters", "paper", "difference")]
    for task in tasks:
        experiment = EXPERIMENTS[task]
        if "training" not in experiment.sections:
            continue
        for model in (*experiment.models, *experiment.others):
            ours, theirs = parameters(task, model), experiment.published.get(model)
            known = ("-", "-") if theirs is None else (f"{theirs:,}", f"{ours - theirs:+d}")
            rows.append((task, model, f"{ours:,}", *known))
    return columns(rows, "llrrr") if len(rows) > 1 else f"{', '.join(tasks)}: nothing is learned."


def result_table(runs: Sequence[Run], summaries: Sequence[dict]) -> str:
    """One line for each run; means and standard deviations over seeds."""
    rows = [_header(summaries)]
    for run, summary in zip(runs, summaries, strict=True):
        rows.append([run.model, run.method, *_cells(rows[0][2:], summary)])
    first = runs[0]
    solver = first.settings.solver
    return "\n".join(
        [
            f"{first.task}, preset {first.preset}, {first.seeds} seed(s), {first.precision} bits, "
            f"tolerance {solver.tolerance:g}; mean ± standard deviation over seeds.",
            columns(rows, "ll" + "r" * (len(rows[0]) - 2)),
            "NFE: evaluations of the field on a whole batch, summed over one pass.",
        ]
    )


def _header(summaries: Sequence[dict]) -> list[str]:
    splits: dict[str, dict[str, None]] = {}
    for summary in summaries:
        for split, measures in summary["splits"].items():
            splits.setdefault(split, {}).update(dict.fromkeys(measures))
    names = ["model", "method"]
    if any("parameters" in summary for summary in summaries):
        names.append("parameters")
    for split in sorted(splits, key=_order("train")):
        measures = sorted(splits[split], key=_order("loss", "accuracy"))
        shown = [m for m in measures if not m.startswith("nfe")]
        names += [f"{split} {m}" for m in shown if m not in _NOT_SHOWN]
    if "train" in splits:
        names += ["train nfe_forward", "train nfe_backward"]
    else:
        names += [f"{split} nfe_forward" for split in splits]
    if any("seconds_per_update" in summary for summary in summaries):
        names.append("s/update")
    return [*names, "diverged"]


_NOT_SHOWN = ("one_step_mse",)


def _order(*first: str) -> Callable[[str], int]:
    """Sorts these names before all others."""
    return lambda name: first.index(name) if name in first else len(first)


def _cells(names: Sequence[str], summary: dict[str, Any]) -> list[str]:
    cells = []
    for name in names:
        if name == "parameters":
            cells.append(f"{summary['parameters']:,}")
        elif name == "s/update":
            cells.append(f"{summary['seconds_per_update']:.3g}")
        elif name == "diverged":
            cells.append(f"{len(summary['diverged'])}/{len(summary['seeds'])}")
        else:
            split, measure = name.split(" ")
            digits = 0 if measure.startswith("nfe") else None
            cells.append(_value(summary["splits"].get(split, {}).get(measure), digits))
    return cells


def _value(measure: dict[str, Any] | None, digits: int | None) -> str:
    if measure is None or measure["final"]["mean"] is None:
        return "-"
    mean, std = measure["final"]["mean"], measure["final"]["std"]
    if digits is not None:
        return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"
    return f"{mean:.3g}" if std is None else f"{mean:.3g} ± {std:.1g}"

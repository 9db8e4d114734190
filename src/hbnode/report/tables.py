"""The tables of the report: results, settings that differ from the paper's, how runs were made."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..runs import flatten, read_json
from .load import STUDIES, Run
from .text import number, spread

PUBLISHED: dict[str, Any] = read_json(Path(__file__).with_name("published.json"))
"""{task: numbers that were published, and what to mind about them}"""

SCORES = {
    "point-cloud": (("full", "loss"), ("test", "loss"), ("test", "accuracy")),
    "mnist": (("train", "loss"), ("test", "loss"), ("test", "accuracy")),
    "cifar10": (("train", "loss"), ("test", "loss"), ("test", "accuracy")),
    "plane-vibration": (("train", "loss"), ("test", "forecast_mse")),
    "walker2d": (("train", "loss"), ("test", "loss")),
    "descent": (
        ("rosenbrock", "loss"), ("rosenbrock", "distance"), ("beale", "loss"),
        ("beale", "distance"), ("rosenbrock", "nfe_forward"), ("beale", "nfe_forward"),
    ),
    "silverbox": (
        ("untrained", "norm_end"), ("untrained", "norm_max"), ("untrained", "nfe_forward")
    ),
}  # fmt: skip
_WORDS = {
    "full": "all points,", "train": "training", "loss": "loss", "forecast_mse": "forecast MSE",
    "norm_end": "‖h‖ at the end", "norm_max": "largest ‖h‖", "nfe_forward": "forward NFE",
    "nfe_backward": "backward NFE", "untrained": "", "rosenbrock": "Rosenbrock,",
    "beale": "Beale,", "distance": "distance from the minimum",
}  # fmt: skip


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    value: float | None = None
    best: bool = False


class Table(NamedTuple):
    """Column titles, and the rows under them."""

    header: list[str]
    rows: list[list[Cell]]


class Difference(NamedTuple):
    """A setting that is not the paper's."""

    setting: str
    paper: str
    here: str
    runs: list[str]


def results(task: str, runs: Sequence[Run]) -> Table:
    """Models × results, the best of each column marked. A run that did not end takes no part in
    the contest."""
    columns: list[tuple[str, list[Cell]]] = []
    trained = task not in STUDIES
    for split, measure in SCORES[task]:
        title = f"{_WORDS.get(split, split)} {_WORDS.get(measure, measure)}".strip()
        for which in ("final", "best") if trained else ("final",):
            cells = [_measure(run, split, measure, which) for run in runs]
            higher = measure == "accuracy"
            columns.append((f"{title}, {which}" if trained else title, _mark(runs, cells, higher)))
    if trained:
        for measure in ("nfe_forward", "nfe_backward"):
            cells = [_measure(run, "train", measure, "final") for run in runs]
            columns.append((_WORDS[measure], _mark(runs, cells)))
        cells = [_seconds(run) for run in runs]
        columns.append(("seconds per update", _mark(runs, cells)))
        columns.append(("parameters", [_parameters(run) for run in runs]))
    columns.append(("seeds", [Cell(_seeds(run)) for run in runs]))
    header = ["model", *(title for title, _ in columns)]
    rows = [
        [Cell(run.label + " †" * (not run.finished)), *(cells[i] for _, cells in columns)]
        for i, run in enumerate(runs)
    ]
    return Table(header, rows)


def _measure(run: Run, split: str, measure: str, which: str) -> Cell:
    told = run.measured["splits"].get(split, {}).get(measure)
    if told is None or told[which]["mean"] is None:
        return Cell("–")
    mean, std = told[which]["mean"], told[which]["std"]
    return Cell(spread(mean, std), mean)


def _seconds(run: Run) -> Cell:
    """Of one update of one seed: time of training over the number of updates of all seeds."""
    timed = [x for x in run.lines if x.get("seconds")]
    if not timed:
        return Cell("–")
    updates = dict.fromkeys(range(run.seeds), 0)
    for line in run.lines:
        updates[line["seed"]] = max(updates[line["seed"]], line["step"])
    value = run.summary.get("seconds_per_update")
    if not isinstance(value, (int, float)):
        value = max(x["seconds"] for x in timed) / max(sum(updates.values()), 1)
    return Cell(number(value), value)


def _parameters(run: Run) -> Cell:
    count = run.summary.get("parameters")
    return Cell(f"{count:,}" if isinstance(count, int) else "–")


def _seeds(run: Run) -> str:
    lost = run.diverged
    if not lost:
        return str(run.seeds)
    names = ", ".join(map(str, lost))
    return f"{run.seeds}; diverged: {'all' if len(lost) == run.seeds else names}"


def _mark(runs: Sequence[Run], cells: list[Cell], higher: bool = False) -> list[Cell]:
    values = [
        cell.value
        for run, cell in zip(runs, cells, strict=True)
        if run.finished and cell.value is not None and math.isfinite(cell.value)
    ]
    if len(values) < 2 or min(values) == max(values):
        return cells
    best = max(values) if higher else min(values)
    return [
        cell._replace(best=run.finished and cell.value == best)
        for run, cell in zip(runs, cells, strict=True)
    ]


def differences(
    runs: Sequence[Run], paper: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Difference], list[str]]:
    """The settings that differ from the paper's, and the runs of models it has no settings for.

    **Arguments:** `paper`: {model: settings}.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    unknown = []
    for run in runs:
        if run.model not in paper:
            unknown.append(run.label)
            continue
        ours = flatten(run.config["settings"])
        theirs = flatten(json.loads(json.dumps(paper[run.model])))
        for key in dict.fromkeys([*theirs, *ours]):
            if ours.get(key, ...) != theirs.get(key, ...):
                here, there = _told(ours.get(key, ...)), _told(theirs.get(key, ...))
                found.setdefault((key, there, here), []).append(run.label)
    return [Difference(*key, labels) for key, labels in found.items()], unknown


def _told(value: Any) -> str:
    if value is ...:
        return "not there"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Made(NamedTuple):
    """What some runs were made with."""

    runs: list[str]
    command: str
    facts: list[tuple[str, str]]


def how_made(runs: Sequence[Run]) -> list[Made]:
    """Commands, versions and machines, once for all runs that share them."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for run in runs:
        told = run.environment
        command = told.get("command")
        text = shlex.join(map(str, command)) if isinstance(command, list) else "not known"
        versions = told.get("versions")
        packages = versions.items() if isinstance(versions, dict) else ()
        machine = f"{told.get('machine', '?')}, {told.get('cores', '?')} cores"
        facts = (
            ("machine", f"{machine}, {told.get('system', '?')}, device {told.get('device', '?')}"),
            ("versions", ", ".join([f"Python {told.get('python', '?')}"]
             + [f"{name} {version}" for name, version in packages])),
            ("revision", str(told.get("git") or "not known")),
        )  # fmt: skip
        found.setdefault((text, facts), []).append(run.name)
    return [Made(names, text, list(facts)) for (text, facts), names in found.items()]

"""Run folders as they are found on disk: what can be used of them, and what is wrong with the rest.

Nothing here raises because of what is in a folder. Every fault is told, with the folder's name, to
a list of `Problem`s, and what is left is used.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runs import RunError, read_arrays, read_json
from ..summary import summarise

TASKS = (
    "descent", "silverbox", "point-cloud", "mnist", "cifar10", "plane-vibration", "walker2d"
)  # fmt: skip
MODELS = ("NODE", "ANODE", "SONODE", "HBNODE", "GHBNODE")
STUDIES = ("descent", "silverbox")
"""Tasks that train nothing."""
_FOREIGN = "not a run of hbnode: there is no config.json."
_KNOWN = ("config.json", "environment.json", "metrics.jsonl", "summary.json")
_DEPTH = 3  # a folder of runs, a task, a run
_DRAWINGS = {".svg", ".pdf", ".csv", ".html"}


class Problem(NamedTuple):
    """What is wrong with a folder."""

    folder: str
    text: str


class Problems:
    """A list without repetitions."""

    def __init__(self):
        self.found: dict[Problem, None] = {}

    def tell(self, folder: str, text: str) -> None:
        self.found[Problem(folder, " ".join(text.split()))] = None


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its folder tells it.

    `lines`: those of metrics.jsonl that could be read. `summary`: empty for a run that did not
    end. `problems`: where faults that are found later are told.
    """

    path: Path
    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    lines: list[dict[str, Any]]
    summary: dict[str, Any]
    problems: Problems = dataclasses.field(repr=False)

    @property
    def task(self) -> str:
        return self.config["task"]

    @property
    def model(self) -> str:
        return self.config["model"]

    @property
    def method(self) -> str:
        return self.config["method"]

    @property
    def label(self) -> str:
        """The model, and the method unless it is the paper's."""
        return self.model if self.method == "paper" else f"{self.model} {self.method}"

    @property
    def seeds(self) -> int:
        return self.config["seeds"]

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @functools.cached_property
    def measured(self) -> dict[str, Any]:
        """`summarise` of the lines."""
        return summarise(self.lines, range(self.seeds))

    @property
    def diverged(self) -> dict[int, str]:
        """{seed: where and why}"""
        return {
            int(seed): f"at update {told['step']}: {told['reason']}"
            for seed, told in self.measured["diverged"].items()
        }

    @property
    def good(self) -> list[int]:
        """The seeds that did not diverge; the first axis of all arrays is that of the seeds."""
        return [seed for seed in range(self.seeds) if seed not in self.diverged]

    @functools.cached_property
    def updates_per_epoch(self) -> float | None:
        for line in self.lines:
            if line.get("epoch"):
                return line["step"] / line["epoch"]
        return None

    def tell(self, text: str) -> None:
        self.problems.tell(self.name, text)

    def arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """An .npz file of the folder, in double precision; `None`, and a problem where that is one,
        without it."""
        return self._arrays.get(name) or self._load(name)

    @functools.cached_property
    def _arrays(self) -> dict[str, dict[str, np.ndarray]]:
        return {}

    def _load(self, name: str) -> dict[str, np.ndarray] | None:
        if not (self.path / name).exists():
            if self.finished:
                self.tell(f"{name} is missing; what it would show is left out.")
            return None
        try:
            found = read_arrays(self.path / name)
        except RunError as error:
            self.tell(f"{error} What it would show is left out.")
            return None
        self._arrays[name] = {
            key: x.astype(float) if np.issubdtype(x.dtype, np.floating) else x
            for key, x in found.items()
        }
        return self._arrays[name]


def load_runs(root: Path) -> tuple[list[Run], list[Problem]]:
    """All runs in and below a folder, in the order of the paper, and what is wrong with them."""
    problems = Problems()
    found = [_read(path, _name(path, root), problems) for path in _folders(root, root, problems)]
    runs = [run for run in found if run is not None]
    runs.sort(key=lambda run: (TASKS.index(run.task), _rank(run.model), run.method != "paper"))
    seen: dict[tuple[str, str, str], Run] = {}
    for run in list(runs):
        first = seen.setdefault((run.task, run.model, run.method), run)
        if first is not run:
            runs.remove(run)
            run.tell(f"a second run of {run.task} {run.label}; {first.name} is shown.")
    return runs, list(problems.found)


def _rank(model: str) -> tuple[int, str]:
    return (MODELS.index(model) if model in MODELS else len(MODELS), model)


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path != root else path.name or str(path)


def _folders(path: Path, root: Path, problems: Problems) -> Iterator[Path]:
    """The folders that look like a run; of the others at the end of a branch it is told that they
    are not."""
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        problems.tell(_name(path, root), f"cannot be read ({error.strerror}).")
        return
    names = {entry.name for entry in entries}
    if names & set(_KNOWN) or any(name.endswith(".npz") for name in names):
        yield path
        return
    inner = [entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    if inner and len(path.relative_to(root).parts) < _DEPTH:
        for entry in inner:
            yield from _folders(entry, root, problems)
    elif _is_expected(path, root) and not _drawings_only(entries):
        empty = not [name for name in names if name != ".lock"]
        problems.tell(
            _name(path, root),
            "the folder is empty." if empty else _FOREIGN,
        )


def _is_expected(path: Path, root: Path) -> bool:
    """Whether a folder is where runs are."""
    return path != root and (len(path.relative_to(root).parts) <= 2 or path.parent.name in TASKS)


def _drawings_only(entries: list[Path]) -> bool:
    """Whether a folder is one that `--figures` wrote to."""
    return bool(entries) and all(entry.suffix in _DRAWINGS for entry in entries)


def _read(path: Path, name: str, problems: Problems) -> Run | None:
    try:
        config = read_json(path / "config.json")
    except RunError as error:
        there = (path / "config.json").exists()
        problems.tell(name, str(error) if there else _FOREIGN)
        return None
    fault = _fault(config)
    if fault:
        problems.tell(name, f"not a run of hbnode: config.json {fault}.")
        return None
    environment = _object(path / "environment.json", name, problems)
    summary: dict[str, Any] = {}
    if (path / "summary.json").exists():
        summary = _object(path / "summary.json", name, problems)
    lines = _lines(path / "metrics.jsonl", name, problems, config["seeds"])
    if not lines:
        there = (path / "metrics.jsonl").exists()
        fault = "has no line that can be used" if there else "is missing"
        problems.tell(name, f"metrics.jsonl {fault}; the run is left out.")
        return None
    run = Run(path, name, config, environment, lines, summary, problems)
    if not run.finished:
        run.tell(_how_far(run))
    for seed, why in run.diverged.items():
        run.tell(f"seed {seed} diverged {why}. It is left out of all means.")
    return run


def _fault(config: dict[str, Any]) -> str:
    """What makes settings unusable, or nothing."""
    kinds = {
        "task": str, "model": str, "method": str, "preset": str, "seeds": int, "precision": int,
        "settings": dict,
    }  # fmt: skip
    for key, kind in kinds.items():
        if not isinstance(config.get(key), kind):
            return f"has no usable {key!r}"
    if config["task"] not in TASKS:
        return f"names the task {config['task']!r}, which is none of {', '.join(TASKS)}"
    return "" if config["seeds"] > 0 else f"has {config['seeds']} seeds"


def _object(path: Path, name: str, problems: Problems) -> dict[str, Any]:
    """A file with a JSON object; empty, and told, without one."""
    try:
        return read_json(path)
    except RunError as error:
        problems.tell(name, str(error) if path.exists() else f"{path.name} is missing.")
        return {}


def _lines(path: Path, name: str, problems: Problems, seeds: int) -> list[dict[str, Any]]:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    lines = []
    for number, content in enumerate(text.splitlines(), start=1):
        try:
            line = json.loads(content)
            seed, step, split = line["seed"], line["step"], line["split"]
            usable = isinstance(split, str) and isinstance(step, int) and step >= 0
            usable &= isinstance(seed, int) and 0 <= seed < seeds
            usable &= all(_is_number(x) for key, x in line.items() if key not in _WORDS)
        except (ValueError, KeyError, TypeError):
            usable, line = False, {}
        if usable:
            lines.append(line)
        else:
            problems.tell(name, f"line {number} of metrics.jsonl cannot be used.")
    return lines


_WORDS = ("split", "diverged")


def _is_number(x: Any) -> bool:
    return x is None or (isinstance(x, (int, float)) and not isinstance(x, bool))


def _how_far(run: Run) -> str:
    if run.task in STUDIES:
        return "not finished."
    last = max(run.lines, key=lambda line: line["step"])
    return f"not finished: shown up to update {last['step']}, epoch {last.get('epoch', 0):.4g}."

"""From run folders to the page and the files of the figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from ..runs import RunError, write_whole
from .figures import draw
from .load import STUDIES, Problem, Run, load_runs
from .plot import Plot, provenance
from .tables import PUBLISHED, differences, how_made, results
from .text import listing, sentence

ABOUT = {
    "descent": (
        "Descent on two test functions",
        "Gradient flow (NODE) and heavy-ball flow (HBNODE) on the functions of Rosenbrock and "
        "Beale. Figure 2 of the paper.",
    ),
    "silverbox": (
        "Growth before training",
        "‖h(t)‖ of models that are not trained, driven by the measured signal of the Silverbox "
        "benchmark. Figure 3 of the paper.",
    ),
    "point-cloud": (
        "Point cloud separation",
        "A disc within a ring, in two dimensions. Figure 5 of the paper.",
    ),
    "mnist": ("MNIST", "Classification of handwritten digits. Figure 6 of the paper."),
    "cifar10": ("CIFAR-10", "Classification of small photographs. Figures 1 and 7 of the paper."),
    "plane-vibration": (
        "Plane vibration",
        "Forecasts of an irregularly sampled ground vibration test. Figures 4 and 8 of the paper.",
    ),
    "walker2d": (
        "Walker2D",
        "One-step prediction of irregularly sampled walks. Figures 4 and 9 of the paper.",
    ),
}

Paper = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{task: {model: settings}}"""


class Report(NamedTuple):
    """What was written, and what could not be used."""

    page: Path
    figures: list[Path]
    problems: list[Problem]


def write_report(root: Path, page: Path, *, paper: Paper, figures: Path | None = None) -> Report:
    """Writes the page of all runs in a folder.

    **Arguments:** `root`: where the runs are. `page`: the file to write. `paper`: the settings of
    the paper, which every run is compared with. `figures`: a folder for the figures as files.

    Raises `RunError` if there is no run that can be shown, or a file cannot be written.
    """
    runs, problems = load_runs(root)
    if not runs:
        told = [f"  {problem.folder}: {problem.text}" for problem in problems]
        raise RunError("\n".join([f"there is no run to report in {root}.", *told]))
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(run.task, []).append(run)
    plots = {task: draw(task, of) for task, of in by_task.items()}
    tasks = [_section(task, of, plots[task], paper.get(task, {})) for task, of in by_task.items()]
    problems = list(runs[0].problems.found)
    command = ["hbnode", "report", str(root)]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    text = environment.get_template("page.html").render(
        title="Heavy-ball neural ODEs: report",
        lead=_lead(runs, by_task),
        tasks=tasks,
        problems=problems,
        environments=how_made(runs),
        command=shlex.join(command),
        version=metadata.version("hbnode"),
    )
    files: list[Path] = []
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_whole(page, text.encode())
        if figures is not None:
            figures.mkdir(parents=True, exist_ok=True)
            files = [path for of in plots.values() for plot in of for path in plot.write(figures)]
    except OSError as error:
        raise RunError(f"{error.filename or page} cannot be written ({error.strerror}).") from None
    return Report(page, files, problems)


def _lead(runs: Sequence[Run], by_task: Mapping[str, Sequence[Run]]) -> str:
    presets = sorted({run.config["preset"] for run in runs})
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    tasks = f"{len(by_task)} task{'s' * (len(by_task) != 1)}"
    return (
        f"{count} of {tasks} of the paper, preset {listing(presets)}. Every figure can be saved as "
        "a drawing (SVG) and as numbers (CSV) with the buttons below it."
    )


def _section(task: str, runs: Sequence[Run], plots: Sequence[Plot], paper: Mapping) -> dict:
    title, about = ABOUT[task]
    differing, unknown = differences(runs, paper)
    labels = [run.label for run in runs]
    return {
        "name": task,
        "title": title,
        "about": about,
        "results": results(task, runs),
        "note": _note(task, runs),
        "published": PUBLISHED.get(task),
        "differences": [
            (d.setting, d.paper, d.here, "all" if d.runs == labels else ", ".join(d.runs))
            for d in differing
        ],
        "compared": len(unknown) < len(runs),
        "uncompared": f"Not in the paper: {', '.join(unknown)}." if unknown else "",
        "plots": [
            {
                "name": plot.name,
                "title": plot.title,
                "caption": plot.caption,
                "provenance": sentence(provenance(plot.runs)),
                "svg": Markup(plot.svg(inline=True)),
                "csv": plot.csv(),
            }
            for plot in plots
        ],
    }


def _note(task: str, runs: Sequence[Run]) -> str:
    """What to know to read the table."""
    parts = [f"{sentence(provenance(runs))}."]
    if any(run.seeds > 1 for run in runs):
        parts.append("Mean and standard deviation (±) over the seeds that did not diverge.")
    if task in STUDIES:
        parts.append("NFE: evaluations of the field, all steps together.")
    else:
        parts.append(
            "Final: the last evaluation of a seed; best: the best of all its evaluations. NFE: "
            "evaluations of the field on a whole batch in one pass, mean over the last updates."
        )
    if len(runs) > 1:
        parts.append("Marked: the best mean of a column.")
    if any(not run.finished for run in runs):
        parts.append("†: not finished, shown as far as it went, never marked.")
    for run in runs:
        if run.diverged:
            told = "; ".join(f"seed {seed} {why}" for seed, why in run.diverged.items())
            parts.append(f"{run.label} diverged: {told}.")
    if len({(run.config["preset"], run.seeds, run.config["precision"]) for run in runs}) > 1:
        parts.append("These runs differ in preset, seeds or precision: compare them with care.")
    return " ".join(parts)

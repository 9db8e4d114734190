"""A figure with its data and all that is said of it, and its files."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ..runs import write_whole
from .load import STUDIES, Run
from .style import INK, NOTE, NOTE_CHARACTERS, RC
from .text import listing, tolerance


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure.

    `name`: of its files. `title`, `caption`: what it shows. `runs`: those that are in it, which it
    names with their preset, seeds, precision and solver. `header`, `rows`: its data.
    """

    name: str
    title: str
    caption: str
    runs: Sequence[Run]
    figure: Figure
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows([_cell(x) for x in row] for row in self.rows)
        return out.getvalue()

    def svg(self, *, inline: bool = False) -> str:
        """`inline`: for a page, with its names made different from those of other figures and the
        colour of its text taken from around it; otherwise on white, for a file."""
        text = self._saved("svg", None if inline else "white").decode()
        # Short, since every marker has one.
        prefix = f"f{zlib.crc32(self.name.encode()) & 0xFFFFF:x}-" if inline else "i"
        text = _tidy(text[text.index("<svg") :], prefix).replace(*_FONTS)
        label = f'<svg role="img" aria-label="{_escaped(self.title)}"'
        text = text.replace("<svg", label, 1)
        return text.replace(INK, "currentColor") if inline else text

    def pdf(self) -> bytes:
        return self._saved("pdf", "white")

    def _saved(self, kind: str, background: str | None) -> bytes:
        out = io.BytesIO()
        keys = ("Creator", "Producer", "CreationDate") if kind == "pdf" else _SVG_KEYS
        with matplotlib.rc_context(RC):
            self.figure.savefig(
                out, format=kind, facecolor=background or "none", dpi=200,
                metadata=dict.fromkeys(keys),
            )  # fmt: skip
        return out.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """SVG, PDF and CSV files."""
        contents = {"svg": self.svg().encode(), "pdf": self.pdf(), "csv": self.csv().encode()}
        paths = [folder / f"{self.name}.{kind}" for kind in contents]
        for path, content in zip(paths, contents.values(), strict=True):
            write_whole(path, content)
        return paths


# The second is as wide as the first, for readers who do not have that.
_FONTS = ("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
_SVG_KEYS = ("Creator", "Date", "Format", "Type")


def sign(figure: Figure, runs: Sequence[Run]) -> None:
    """Writes below a figure what its runs were made with."""
    lines = textwrap.wrap(provenance(runs), NOTE_CHARACTERS)
    figure.supxlabel("\n".join(lines), x=0.02, ha="left", fontsize=NOTE, alpha=0.75)


def provenance(runs: Sequence[Run]) -> str:
    """Preset, seeds, precision and solver of the runs of a figure: first what they share, then
    what they do not."""
    made = {run.label: _made(run) for run in runs}
    shared = [part for part in next(iter(made.values())) if all(part in x for x in made.values())]
    parts: dict[str, list[str]] = {}
    for label, told in made.items():
        own = ", ".join(part for part in told if part not in shared)
        parts.setdefault(own, []).append(label)
    own = [f"{listing(labels)}: {text}" for text, labels in parts.items() if text]
    return "; ".join([", ".join(shared), *own])


_SOLVERS = {"default": "the library's solver"}
_GRADIENTS = {
    "default": "the library's gradient", "discrete": "discrete adjoint",
    "checkpointed": "checkpointed adjoint", "continuous": "continuous adjoint",
    "continuous-full": "continuous adjoint with full norm",
}  # fmt: skip


def _made(run: Run) -> list[str]:
    solver = run.config["settings"].get("solver")
    solver = solver if isinstance(solver, dict) else {}
    name, gradient = str(solver.get("name", "?")), str(solver.get("gradient", "?"))
    at = solver.get("tolerance")
    told = [
        f"preset {run.config['preset']}",
        f"{run.seeds} seed{'s' * (run.seeds != 1)}",
        f"{run.config['precision']} bits",
        "tolerance " + (tolerance(at) if isinstance(at, float) and at > 0 else "?"),
        _SOLVERS.get(name, name.capitalize()),
    ]
    if run.task not in STUDIES:
        told.append(_GRADIENTS.get(gradient, gradient))
        told += ["warm start"] * bool(solver.get("warm_start"))
    return told + ["not finished"] * (not run.finished)


def _cell(x: Any) -> str:
    if isinstance(x, (float, np.floating)):
        return f"{x:.6g}" if np.isfinite(x) else ""
    return str(x)


def _tidy(svg: str, prefix: str) -> str:
    """With names that begin with `prefix`, and without what is not needed: comments, metadata,
    names that nothing refers to, a size in points, decimals beyond the second (of markers the
    first), the same style on every marker."""
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, end, rest = svg.partition(">")
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", head) + end + rest
    used = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    short = {long: f"{prefix}{number}" for number, long in enumerate(used)}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{short[m[1]]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#([^")]+)', lambda m: f"{m[1]}#{short[m[2]]}", svg)
    svg = re.sub(r"<[^>]+>", _rounded, svg)
    svg = re.sub(r"\n\s*", "\n", svg).replace("<use xlink:href", "<use href")
    svg = _MARKERS.sub(_style_once, svg)
    return re.sub(r"<g>\n</g>\n", "", svg).strip()


_MARKERS = re.compile(
    r'<g([^>]*)>\n((?:<use [^>]*style="([^"]*)"/>\n)(?:<use [^>]*style="\3"/>\n)+)'
)


def _style_once(group: re.Match) -> str:
    """A style that all markers of a group have, on the group."""
    style = f' style="{group[3]}"'
    return f"<g{group[1]}{style}>\n{group[2].replace(style, '')}"


_DECIMALS = re.compile(r"(?<![#\w])-?\d+\.\d{2,}")


def _rounded(tag: re.Match) -> str:
    places = 1 if tag[0].startswith("<use") else 2
    return _DECIMALS.sub(
        lambda digits: f"{float(digits[0]):.{places}f}".rstrip("0").rstrip("."), tag[0]
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def rows_of(run: Run, *columns: Iterable[Any]) -> list[list[Any]]:
    """Lines of a CSV file that begin with model and method."""
    return [[run.model, run.method, *row] for row in zip(*columns, strict=True)]

"""One run: from a task, a model and settings to a folder with the results."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax

from .experiments import build
from .models import FAILURES
from .runs import RunFolder, environment
from .summary import summarise
from .tasks import AbstractStudy
from .training import fit


@dataclasses.dataclass(frozen=True)
class Run:
    """What makes a run what it is. Two runs with equal fields give equal results."""

    task: str
    model: str
    method: str
    preset: str
    seeds: int
    precision: int
    settings: Any

    @property
    def name(self) -> str:
        return f"{self.model}-{self.method}"

    def config(self) -> dict:
        told = {name: getattr(self, name) for name in ("task", "model", "method", "preset")}
        more = {"seeds": self.seeds, "precision": self.precision}
        return told | more | {"settings": dataclasses.asdict(self.settings)}

    def folder(self, out: Path) -> Path:
        return out / self.task / self.name


def set_up(precision: int) -> None:
    """Prepares JAX, once, before it computes anything: every core is a device, so that seeds can
    be spread over them."""
    jax.config.update("jax_enable_x64", precision == 64)
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def launch(run: Run, out: Path, *, resume: bool = False, overwrite: bool = False) -> dict:
    """Makes or completes the run in its folder and returns its summary. A run that is complete
    already is not made again."""
    with RunFolder(run.folder(out), run.config(), resume=resume, overwrite=overwrite) as folder:
        if folder.summary is not None:
            return folder.summary
        device = jax.devices()[0]
        folder.write_json(
            "environment.json",
            environment(
                precision=run.precision, device=device.device_kind, devices=len(jax.devices())
            ),
        )
        task = build(run.task, run.model, run.settings)
        seeds = list(range(run.seeds))
        method = run.settings.solver.method()
        if isinstance(task, AbstractStudy):
            return _study(task, method, seeds, folder)
        return fit(task, run.settings.training, method, seeds, folder, f"{run.task} {run.name}")


def _study(task: AbstractStudy, method: Any, seeds: list[int], folder: RunFolder) -> dict:
    lines, arrays = task.run(seeds, method)
    for line in lines:
        failure = line.pop("failure")
        if failure:
            line["diverged"] = FAILURES[failure]
    folder.write_metrics(lines)
    folder.write_arrays("arrays.npz", arrays)
    summary = summarise(lines, seeds)
    folder.write_json("summary.json", summary)
    return summary


def all_diverged(summary: dict) -> bool:
    return len(summary["diverged"]) == len(summary["seeds"])

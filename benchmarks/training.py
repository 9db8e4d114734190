"""One update of every training task beside torchdiffeq and plain diffrax.

Every task is measured in a process of its own, one after the other, and all in one go:

    python benchmarks/training.py [--tasks point-cloud ...] [--out docs/benchmarks]

writes OUT.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side.problems import TASKS, precision

ROOT = Path(__file__).resolve().parent.parent
BUDGET = {"point-cloud": 15, "plane-vibration": 40, "walker2d": 40, "mnist": 60, "cifar10": 60}
"""Seconds for the interleaved repeats of each model."""


def measure_here(task: str, out: Path) -> None:
    """In this process, which must not have computed anything yet."""
    import jax

    jax.config.update("jax_enable_x64", precision(task) == 64)
    from side_by_side.measure import measure_task

    out.write_text(json.dumps(measure_task(task, BUDGET[task])))


def measure_apart(task: str) -> dict:
    """In a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "task.json"
        command = [sys.executable, __file__, "--one", task, "--out", str(out)]
        subprocess.run(command, check=True)
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--one", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    args = parser.parse_args()
    if args.one:
        measure_here(args.one, args.out)
        return
    start = time.perf_counter()
    found = {}
    for task in args.tasks:
        found[task] = measure_apart(task)
        print(f"{task}: {time.perf_counter() - start:.0f} s", flush=True)
    args.out.with_suffix(".json").write_text(json.dumps({"tasks": found}, indent=1))


if __name__ == "__main__":
    main()

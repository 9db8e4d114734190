"""One update of every training task beside torchdiffeq and plain diffrax.

Every part is measured in a process of its own, one after the other, and all in one go:

    python benchmarks/training.py [--tasks point-cloud ...] [--out docs/benchmarks]

writes OUT.json and, from it and the text in side_by_side/page.py, OUT.md. `--page` writes the page
of a JSON file that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_by_side.page import write_page
from side_by_side.problems import TASKS, precision

ROOT = Path(__file__).resolve().parent.parent
BUDGET = {"point-cloud": 8, "plane-vibration": 15, "walker2d": 15, "mnist": 0, "cifar10": 0}
"""Seconds for the interleaved repeats of each model."""
MANY = "many"


def measure_here(part: str, out: Path) -> None:
    """In this process, which must not have computed anything yet."""
    import jax

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    if part == MANY:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
        from side_by_side.many import memory_by_steps, seeds_together

        found = {"seeds": seeds_together(), "memory": memory_by_steps()}
    else:
        jax.config.update("jax_enable_x64", precision(part) == 64)
        from side_by_side.measure import measure_task

        found = measure_task(part, BUDGET[part])
    out.write_text(json.dumps(found))


def measure_apart(part: str) -> dict:
    """In a process of its own, with a compilation cache of its own that is empty at first."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        command = [sys.executable, __file__, "--one", part, "--out", str(out)]
        cache = {"JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache")}
        subprocess.run(command, check=True, env=os.environ | cache)
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--one", choices=(*TASKS, MANY), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks")
    args = parser.parse_args()
    if args.one:
        measure_here(args.one, args.out)
        return
    data, page = args.out.with_suffix(".json"), args.out.with_suffix(".md")
    if not args.page:
        from side_by_side.machine import describe

        start, load = time.perf_counter(), os.getloadavg()
        found: dict = {"machine": describe(), "tasks": {}}
        for part in (*args.tasks, MANY):
            place = found if part == MANY else found["tasks"]
            place[part] = measure_apart(part)
            data.write_text(json.dumps(found, indent=1) + "\n")
            print(f"{part}: done after {time.perf_counter() - start:.0f} s", flush=True)
        found["minutes"] = (time.perf_counter() - start) / 60
        found["load"] = {"before": load, "after": os.getloadavg()}
        data.write_text(json.dumps(found, indent=1) + "\n")
    page.write_text(write_page(json.loads(data.read_text())))
    print(f"wrote {data} and {page}")


if __name__ == "__main__":
    main()

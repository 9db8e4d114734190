"""Interleaved repeats, and the memory a call takes."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def in_turns(
    runs: Mapping[str, Callable[[], object]], budget: float, least: int = 3, most: int = 60
) -> dict[str, list[float]]:
    """{name: seconds of each repeat}, all versions one after the other in every repeat, so that
    whatever else the machine does hits all alike; until `budget` seconds are spent."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for repeat in range(most):
        if repeat >= least and time.perf_counter() - start > budget:
            break
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return times


def temporary_megabytes(program: Any) -> float:
    """What a compiled program sets aside beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes / 1e6


def peak_megabytes(run: Callable[[], object]) -> float:
    """By how much the resident memory of the process rises above what it is now while `run` works
    (Linux: the high-water mark is reset first)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    """Kilobytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)

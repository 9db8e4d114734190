"""Everything that is measured of one task, as a dict for the JSON file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch

from .bare import bare_field
from .in_diffrax import DiffraxUpdate
from .in_hbnode import HbnodeUpdate, warmed_up
from .in_torch import TorchUpdate
from .problems import MODELS, Problem, make_problem
from .timing import in_turns, peak_megabytes

TORCH, DIFFRAX, FAST, PAPER = "torchdiffeq", "diffrax", "hbnode", "hbnode, paper's method"
VERSIONS = (TORCH, DIFFRAX, FAST, PAPER)

AGREEMENT = {64: 2e-3, 32: 2e-2}
"""Bounds of what the versions may differ by: the gradient, ‖difference‖₂ over ‖gradient‖₂, at a
tolerance of 1e-7 (float64) and 1e-5 (float32); for the loss a tenth of it, relative to 1 + |loss|.
The steps of a solve are controlled, not the sum of their errors, nor the error of a derivative."""


def measure_task(name: str, budget: float) -> dict[str, Any]:
    """{model: what was measured}"""
    return {model: measure(warmed_up(make_problem(name, model)), budget) for model in MODELS}


def measure(problem: Problem, budget: float) -> dict[str, Any]:
    """**Arguments:** `budget`: seconds for the interleaved repeats."""
    told: dict[str, dict] = {name: {} for name in VERSIONS}
    updates: dict[str, Any] = {
        DIFFRAX: DiffraxUpdate(problem),
        FAST: HbnodeUpdate(problem, problem.method("fast")),
        PAPER: HbnodeUpdate(problem, problem.method("paper")),
    }
    runs: dict[str, Callable[[], object]] = {}
    losses, gradients = {}, {}
    for name, update in updates.items():
        start = time.perf_counter()
        program = update.function.lower(*update.arguments).compile()
        told[name]["compile_seconds"] = time.perf_counter() - start
        memory = program.memory_analysis()
        told[name]["temporary_megabytes"] = memory.temp_size_in_bytes / 1e6
        runs[name] = lambda program=program, update=update: jax.block_until_ready(
            program(*update.arguments)
        )
        _, _, out = program(*update.arguments)
        losses[name], gradients[name] = float(out[0]), update.gradient(out)
        if name == DIFFRAX:
            told[name]["steps"] = int(out[2])
        else:
            told[name] |= {"nfe_forward": int(out[2]), "nfe_backward": int(out[3])}

    pytorch = TorchUpdate(problem)
    start = time.perf_counter()
    losses[TORCH] = pytorch()
    told[TORCH]["first_seconds"] = time.perf_counter() - start
    gradients[TORCH] = pytorch.gradient()
    told[TORCH] |= dict(zip(("nfe_forward", "nfe_backward"), pytorch.nfe, strict=True))
    told[TORCH]["threads"] = faster_threads(pytorch)
    runs = {TORCH: lambda: (pytorch(), pytorch.reset())} | runs

    agreement = compare(losses, gradients, AGREEMENT[8 * np.dtype(problem.dtype).itemsize])
    times = in_turns(runs, budget)
    for name in VERSIONS:
        told[name]["seconds"] = times[name]
        told[name]["loss"] = losses[name]
        told[name] |= agreement[name]
        told[name]["peak_megabytes"] = peak_megabytes(runs[name])
    field, product = bare_field(problem, seconds=0.3)
    return {
        "versions": told,
        "field_seconds": field,
        "product_seconds": product,
        "tolerance": problem.tolerance,
        "bits": 8 * np.dtype(problem.dtype).itemsize,
    }


def faster_threads(update: TorchUpdate) -> int:
    """With one thread or with two, whichever is faster; small operations do not gain by a second
    one, and lose much on a busy machine."""
    seconds = {}
    for threads in (2, 1):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        update()
        seconds[threads] = time.perf_counter() - start
        update.reset()
    best = min(seconds, key=seconds.__getitem__)
    torch.set_num_threads(best)
    return best


def compare(
    losses: dict[str, float], gradients: dict[str, dict[str, np.ndarray]], bound: float
) -> dict[str, dict[str, float]]:
    """How far each version is from (d), hbnode by the paper's method; an `AssertionError` if more
    than the bound."""
    reference = gradients[PAPER]
    size = np.sqrt(sum(np.sum(x.astype(float) ** 2) for x in reference.values()))
    out = {}
    for name, gradient in gradients.items():
        assert gradient.keys() == reference.keys(), name
        off = sum(np.sum((gradient[k].astype(float) - reference[k]) ** 2) for k in reference)
        gradient_off = float(np.sqrt(off) / size)
        loss_off = abs(losses[name] - losses[PAPER]) / (1 + abs(losses[PAPER]))
        assert gradient_off < bound and loss_off < bound / 10, (name, loss_off, gradient_off)
        out[name] = {"loss_off": loss_off, "gradient_off": gradient_off}
    return out

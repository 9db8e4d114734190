"""Everything that is measured of one task, as a dict for the JSON file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch

from .bare import bare_field
from .in_diffrax import DiffraxUpdate
from .in_hbnode import HbnodeUpdate, warmed_up
from .in_torch import TorchUpdate
from .page import DIFFRAX, FAST, FEW, PAPER, TORCH
from .problems import MODELS, Problem, make_problem
from .timing import in_turns, peak_megabytes, temporary_megabytes

VERSIONS = (TORCH, DIFFRAX, FAST, PAPER)

AGREEMENT = {64: 2e-3, 32: 2e-2}
"""Bounds of what the versions may differ by: the gradient, ‖difference‖₂ over ‖gradient‖₂, at a
tolerance of 1e-7 (float64) and 1e-5 (float32); for the loss a tenth of it, relative to 1 + |loss|.
The steps of a solve are controlled, not the sum of their errors, nor the error of a derivative."""


def measure_task(name: str, budget: float) -> dict[str, Any]:
    """{model: what was measured}"""
    return {model: measure_model(warmed_up(make_problem(name, model)), budget) for model in MODELS}


def measure_model(problem: Problem, budget: float) -> dict[str, Any]:
    """**Arguments:** `budget`: seconds for the interleaved repeats."""
    if problem.of_images:
        told = measure(problem, (TORCH, FAST, PAPER), budget)
        few = measure(problem.cut(FEW), (DIFFRAX, FAST, PAPER), 0, least=2)
    else:
        told, few = measure(problem, VERSIONS, budget), None
    # the program of (c) was compiled before, for the updates that came first
    told[FAST]["warm_compile_seconds"] = told[FAST]["compile_seconds"]
    told[FAST]["compile_seconds"] = problem.cold_seconds
    field, product = bare_field(problem, seconds=0.3)
    return {
        "versions": told,
        "few_images": few,
        "field_seconds": field,
        "product_seconds": product,
        "tolerance": problem.tolerance,
        "bits": 8 * np.dtype(problem.dtype).itemsize,
    }


def measure(
    problem: Problem, names: Sequence[str], budget: float, least: int = 3
) -> dict[str, dict[str, Any]]:
    """{version: what was measured of it}"""
    told: dict[str, dict] = {name: {} for name in names}
    runs: dict[str, Callable[[], object]] = {}
    losses, gradients = {}, {}
    for name in names:
        make = _pytorch if name == TORCH else _compiled
        runs[name], losses[name], gradients[name], told[name] = make(problem, name)
    agreement = compare(losses, gradients, AGREEMENT[8 * np.dtype(problem.dtype).itemsize])
    times = in_turns(runs, budget, least)
    for name in names:
        told[name] |= {"seconds": times[name], "loss": losses[name], **agreement[name]}
        told[name]["peak_megabytes"] = peak_megabytes(runs[name])
    return told


def _pytorch(problem: Problem, name: str):
    update = TorchUpdate(problem)
    told: dict[str, Any] = {"threads": faster_threads(update)}
    start = time.perf_counter()
    loss = update()
    told["first_seconds"] = time.perf_counter() - start
    gradient = update.gradient()
    told |= dict(zip(("nfe_forward", "nfe_backward"), update.nfe, strict=True))
    update.reset()
    return lambda: (update(), update.reset()), loss, gradient, told


def _compiled(problem: Problem, name: str):
    def make():
        if name == DIFFRAX:
            return DiffraxUpdate(problem)
        return HbnodeUpdate(problem, problem.method("fast" if name == FAST else "paper"))

    jax.clear_caches()  # of this process; what is on the disk stays
    start = time.perf_counter()
    update = make()
    program = update.function.lower(*update.arguments).compile()
    told: dict[str, Any] = {"compile_seconds": time.perf_counter() - start}
    _, _, out = program(*update.arguments)
    counts = {"steps": int(out[2])}
    if name != DIFFRAX:
        counts = {"nfe_forward": int(out[2]), "nfe_backward": int(out[3])}
    told |= counts | {"temporary_megabytes": temporary_megabytes(program)}

    def run():
        return jax.block_until_ready(program(*update.arguments))

    return run, float(out[0]), update.gradient(out), told


def faster_threads(update: TorchUpdate) -> int:
    """With one thread or with two, whichever is faster; small operations do not gain by a second
    one, and lose much on a busy machine."""
    seconds: dict[int, float] = {}
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        update()
        took = time.perf_counter() - start
        seconds[threads] = min(took, seconds.get(threads, took))
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

"""How long the report of 7 tasks × 5 models × 10 seeds takes, and how large its page is.

python benchmarks/report.py [--seeds 10] [--keep FOLDER]

The runs are made up: random numbers in the shapes of real runs of the preset "paper" (40 to 500
epochs), so that nothing has to be trained.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

from hbnode.experiments import EXPERIMENTS, FAMILIES, paper_settings
from hbnode.report import write_report
from hbnode.runs import environment, pack
from hbnode.summary import summarise

SPLITS = {
    "point-cloud": ("full", "test"), "mnist": ("validation", "test"),
    "cifar10": ("validation", "test"), "plane-vibration": ("validation", "test"),
    "walker2d": ("validation", "test"),
}  # fmt: skip
MEASURES = {
    "point-cloud": ("loss", "accuracy"), "mnist": ("loss", "accuracy"),
    "cifar10": ("loss", "accuracy"), "plane-vibration": ("loss", "forecast_mse"),
    "walker2d": ("loss",),
}  # fmt: skip
PER_EPOCH = {"point-cloud": 2, "mnist": 859, "cifar10": 703, "plane-vibration": 7, "walker2d": 34}
SNAPSHOT_SEEDS = 3


def make_run(folder: Path, task: str, model: str, seeds: int, settings: dict) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(zlib.crc32(f"{task} {model}".encode()))
    config = {
        "task": task, "model": model, "method": "paper", "preset": "paper", "seeds": seeds,
        "precision": EXPERIMENTS[task].precision, "settings": settings,
    }  # fmt: skip
    study = task not in SPLITS
    lines, files = (studied if study else trained)(task, model, seeds, settings, rng)
    for name, arrays in files.items():
        (folder / name).write_bytes(pack(arrays))
    summary = summarise(lines, range(seeds)) | {"parameters": 8899, "seconds_per_update": 0.1}
    contents = {"config": config, "environment": environment(device="cpu"), "summary": summary}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def studied(task, model, seeds, settings, rng):
    if task == "silverbox":
        lines = [
            {"seed": seed, "step": 0, "epoch": 0, "split": "untrained", "norm_end": rng.random(),
             "norm_max": 1 + rng.random(), "nfe_forward": 1400, "nfe_backward": 0}
            for seed in range(seeds)
        ]  # fmt: skip
        arrays = {
            "ts": np.linspace(0, 64, 257), "norms": np.exp(rng.normal(size=(seeds, 257)).cumsum(1)),
            "signal": rng.normal(size=(65, 2)), "signal_ts": np.arange(65),
        }  # fmt: skip
        return lines, {"arrays.npz": arrays}
    lines, arrays = [], {"near": np.array([1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01])}
    for name, steps in (("rosenbrock", 1000), ("beale", 200)):
        lines += [
            {"seed": seed, "step": steps, "epoch": 0, "split": name, "loss": rng.random(),
             "distance": rng.random(), "nfe_forward": 7 * steps, "nfe_backward": 0}
            for seed in range(seeds)
        ]  # fmt: skip
        arrays |= {
            f"{name}_ts": np.linspace(0, 1, steps + 1), f"{name}_values": rng.random(steps + 1),
            f"{name}_path": rng.normal(size=(steps + 1, 2)).cumsum(axis=0) / 50,
            f"{name}_first_passage": 1 + rng.random(7).cumsum(),
        }  # fmt: skip
    return lines, {"arrays.npz": arrays}


def trained(task, model, seeds, settings, rng):
    training = settings["training"]
    updates = round(training["epochs"] * PER_EPOCH[task])
    evaluations = np.arange(0, training["epochs"] + 1e-9, training["evaluate_every"])
    measures = MEASURES[task]
    lines = []
    for epoch in evaluations:
        for seed in range(seeds):
            for split in ("train", *SPLITS[task])[int(epoch == 0) :]:
                told = {name: 0.1 + rng.random() / (1 + epoch) for name in measures}
                lines.append(
                    {"seed": seed, "step": round(epoch * PER_EPOCH[task]), "epoch": epoch,
                     "split": split, **told, "nfe_forward": 30 + epoch + rng.random(),
                     "nfe_backward": 40 + epoch + rng.random(), "seconds": 3.0 * epoch}
                )  # fmt: skip
    shape = (seeds, updates)
    names = [*measures, "nfe_forward", "nfe_backward"]
    files = {"history.npz": {name: 0.1 + rng.random(shape) for name in names}}
    steps = np.round(evaluations * PER_EPOCH[task])
    few = min(seeds, SNAPSHOT_SEEDS)
    counts = (30 * np.arange(1, 8) + rng.random((seeds, 7))).round()
    swept = {
        "tolerance": np.tile(10.0 ** -np.arange(3, 10), (seeds, 1)),
        "nfe_forward": counts, "nfe_backward": 2 * counts,
    }  # fmt: skip
    if task == "point-cloud":
        positions = rng.normal(size=(few, len(steps), 9, 120, 2))
        files["snapshots.npz"] = {"steps": steps, "positions": positions}
        files["closing.npz"] = swept | {"error": swept["tolerance"] * (1 + rng.random((seeds, 7)))}
        files["context.npz"] = {
            "points": positions[:, 0, 0], "times": np.tile(np.linspace(0, 1, 9), (few, 1)),
            "targets": np.tile(np.repeat([-1.0, 1.0], [40, 80]), (few, 1)),
        }  # fmt: skip
    if task == "cifar10":
        files["closing.npz"] = swept
    if task in ("plane-vibration", "walker2d"):
        channels, gaps = (5, 0.11) if task == "plane-vibration" else (17, 1.1 / 64)
        outputs = rng.normal(size=(seeds, 4, 64, channels))
        norms = np.exp(np.linspace(-9, 0, 64) + rng.normal(size=(few, len(steps), 64)))
        files["snapshots.npz"] = {"steps": steps, "adjoint_norms": norms}
        files["closing.npz"] = {"outputs": outputs}
        files["context.npz"] = {
            "gaps": np.full((few, 4, 64), gaps),
            "targets": rng.normal(size=(few, 4, 64, channels)),
        }
        if task == "plane-vibration":
            ahead = rng.normal(size=(seeds, 4, 8, channels))
            horizons = np.tile(gaps + 0.1 * np.arange(8), (few, 4, 1))
            files["closing.npz"]["forecasts"] = ahead
            files["context.npz"] |= {"forecast": ahead[:few], "horizons": horizons}
    return lines, files


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a new folder for the runs and the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        paper = paper_settings()
        for task in EXPERIMENTS:
            for model in FAMILIES:
                folder = root / task / f"{model}-paper"
                make_run(folder, task, model, options.seeds, paper[task].get(model, {})
                         or paper[task]["NODE"])  # fmt: skip
        began = time.perf_counter()
        report = write_report(root, root / "report.html", paper=paper)
        seconds = time.perf_counter() - began
        size = report.page.stat().st_size / 1e6
        shape = f"{len(EXPERIMENTS)} tasks x {len(FAMILIES)} models x {options.seeds} seeds"
        print(f"{shape}: {seconds:.1f} s, {size:.2f} MB, {len(report.problems)} problems")
        for problem in report.problems:
            print(f"  {problem.folder}: {problem.text}")


if __name__ == "__main__":
    main()

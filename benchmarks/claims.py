"""The claims of the paper beside what run folders say, as the Markdown of docs/results.md.

hbnode compare TASK ...                        # for each task, with 3 or more seeds
python benchmarks/claims.py runs > docs/results.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

BASELINES, OURS = ("NODE", "ANODE", "SONODE"), ("HBNODE", "GHBNODE")
TRAINED = ("point-cloud", "mnist", "cifar10", "plane-vibration", "walker2d")
SEPARATED = 1e-3


class Run(NamedTuple):
    """A finished run."""

    path: Path
    config: dict
    summary: dict
    lines: list[dict]

    def final(self, split: str, measure: str) -> np.ndarray:
        """The last value of every seed that did not diverge."""
        found = self.summary["splits"].get(split, {}).get(measure)
        return np.array(list(found["final"]["seeds"].values())) if found else np.array([])

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.path / name) as file:
            return dict(file)

    def growth(self, measure: str) -> np.ndarray:
        """For every seed the last of the training means over the first."""
        out = []
        for seed in self.summary["seeds"]:
            mine = [x for x in self.lines if x["seed"] == seed and x["split"] == "train"]
            if str(seed) not in self.summary["diverged"] and len(mine) > 1:
                out.append(mine[-1][measure] / mine[0][measure])
        return np.array(out)


def load(root: Path) -> dict[str, dict[str, Run]]:
    """{task: {"MODEL-METHOD": run}} of all finished runs."""
    runs: dict[str, dict[str, Run]] = {}
    for path in sorted(root.glob("*/*/summary.json")):
        folder = path.parent
        lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
        config = json.loads((folder / "config.json").read_text())
        summary = json.loads(path.read_text())
        runs.setdefault(config["task"], {})[folder.name] = Run(folder, config, summary, lines)
    return runs


def told(values: np.ndarray) -> str:
    """Mean ± standard deviation."""
    values = values[np.isfinite(values)]
    if not values.size:
        return "–"
    mean = f"{values.mean():.0f}" if abs(values.mean()) >= 100 else f"{values.mean():.3g}"
    return mean if values.size < 2 else f"{mean} ± {values.std(ddof=1):.2g}"


def verdict(values: dict[str, np.ndarray]) -> str:
    """Whether HBNODE and GHBNODE are below every other model, by more than the spread over seeds
    (the root of the sum of both variances)."""
    outcomes = []
    for ours in OURS:
        for theirs in BASELINES:
            a, b = values.get(ours, np.array([])), values.get(theirs, np.array([]))
            if a.size and b.size:
                spread = np.sqrt(sum(x.var(ddof=1) for x in (a, b) if x.size > 1))
                gap = b.mean() - a.mean()
                outcomes.append(1 if gap > spread else -1 if gap < -spread else 0)
    if not outcomes:
        return "not measured"
    if min(outcomes) == 1:
        return "holds"
    if max(outcomes) == -1:
        return "does not hold"
    below, above = outcomes.count(1), outcomes.count(-1)
    within = len(outcomes) - below - above
    return (
        f"in part: of {len(outcomes)} pairs {below} lower, {within} within spread, {above} higher"
    )


def table(title: str, rows: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """One line for each task."""
    out = [f"### {title}", "", "| task | NODE | ANODE | SONODE | HBNODE | GHBNODE | holds? |"]
    out.append("|---|---|---|---|---|---|---|")
    for task, values in rows.items():
        cells = [told(values.get(model, np.array([]))) for model in (*BASELINES, *OURS)]
        out.append(f"| {task} | " + " | ".join(cells) + f" | {verdict(values)} |")
    return [*out, ""]


def by_model(runs: dict[str, Run], measure) -> dict[str, np.ndarray]:
    """`measure` of the runs with the method "paper"."""
    return {
        name.partition("-")[0]: measure(run)
        for name, run in runs.items()
        if run.config["method"] == "paper"
    }


def claims(runs: dict[str, dict[str, Run]]) -> list[str]:
    trained = {task: runs[task] for task in TRAINED if task in runs}
    out: list[str] = []
    for title, measure in (
        ("Fewer forward evaluations", "nfe_forward"), ("Fewer backward evaluations", "nfe_backward")
    ):  # fmt: skip
        rows = {
            task: by_model(of, lambda run, m=measure: run.final("train", m))
            for task, of in trained.items()
        }
        out += table(f"{title}: mean over the last updates", rows)
    for direction in ("forward", "backward"):
        rows = {
            task: by_model(of, lambda run, d=direction: run.growth(f"nfe_{d}"))
            for task, of in trained.items()
        }
        out += table(f"Less growth of {direction} evaluations with training: last over first", rows)
    if "cifar10" in runs:
        for direction in ("forward", "backward"):
            rows = {
                "cifar10": by_model(runs["cifar10"], lambda run, d=direction: steepness(run, d))
            }
            out += table(
                f"Less growth of {direction} evaluations with tolerance: at the smallest over at "
                "the largest tolerance", rows,
            )  # fmt: skip
    rows = {
        task: by_model(of, lambda run: run.final("test", "loss")) for task, of in trained.items()
    }
    out += table("Lower test loss at the end", rows)
    for task in ("walker2d", "plane-vibration"):
        if task in runs:
            rows = {task: by_model(runs[task], lambda run: -decay(run))}
            out += table(
                "Slower decay of the adjoint: decades by which its norm falls from the last stamp "
                "to the first, trained model", {task: {k: -v for k, v in rows[task].items()}},
            )  # fmt: skip
    if "silverbox" in runs:
        rows = {
            "silverbox": by_model(runs["silverbox"], lambda r: r.final("untrained", "norm_max"))
        }
        out += table("Bounded ‖h‖ before training: the largest ‖h(t)‖", rows)
    if "point-cloud" in runs:
        out += separation(runs["point-cloud"])
    if "descent" in runs:
        out += passages(runs["descent"])
    return out


def steepness(run: Run, direction: str) -> np.ndarray:
    arrays = run.arrays("closing.npz")
    counts = arrays[f"nfe_{direction}"].astype(float)
    order = np.argsort(arrays["tolerance"][0])
    return counts[:, order[0]] / counts[:, order[-1]]


def decay(run: Run) -> np.ndarray:
    norms = run.arrays("snapshots.npz")["adjoint_norms"][:, -1]
    return np.log10(norms[:, 0] / norms[:, -1])


def separation(runs: dict[str, Run]) -> list[str]:
    out = ["### Separation of the point cloud: runs with a training MSE below 1e-3", ""]
    out += ["| model | method | separated | mean MSE |", "|---|---|---|---|"]
    for run in runs.values():
        mse = run.final("full", "loss")
        seeds = len(run.summary["seeds"])
        model, method = run.config["model"], run.config["method"]
        out.append(
            f"| {model} | {method} | {(mse < SEPARATED).sum()} of {seeds} | {mse.mean():.2g} |"
        )
    return [*out, ""]


def passages(runs: dict[str, Run]) -> list[str]:
    out = [
        "### Gradient flow (NODE) and heavy-ball flow (HBNODE): time until within a distance",
        "",
    ]
    first = next(iter(runs.values())).arrays("arrays.npz")
    near = [f"{x:g}" for x in first["near"]]
    out += [f"| function | flow | {' | '.join(near)} |", "|---|---|" + "---|" * len(near)]
    for name in ("rosenbrock", "beale"):
        for run in runs.values():
            times = run.arrays("arrays.npz")[f"{name}_first_passage"]
            cells = [f"{t:.2f}" if np.isfinite(t) else "never" for t in times]
            out.append(f"| {name} | {run.config['model']} | {' | '.join(cells)} |")
    return [*out, ""]


def settings(runs: dict[str, dict[str, Run]]) -> list[str]:
    out = ["| task | preset | method | seeds | bits | tolerance | updates | machine |"]
    out.append("|---|---|---|---|---|---|---|---|")
    for task, of in runs.items():
        run = next(iter(of.values()))
        made = json.loads((run.path / "environment.json").read_text())
        config = run.config
        methods = " and ".join(sorted({r.config["method"] for r in of.values()}))
        out.append(
            f"| {task} | {config['preset']} | {methods} | {config['seeds']} | "
            f"{config['precision']} | {config['settings']['solver']['tolerance']:g} | "
            f"{run.summary.get('updates', '–')} | {made['machine']}, {made['cores']} cores |"
        )
    return [*out, ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="the folder of the run folders")
    runs = load(parser.parse_args().runs)
    text = [
        "# Results", "",
        "What the paper claims, and what `quick` runs with the method `paper` (Dopri5, continuous "
        "adjoint with the full norm, cold starts) show here. Made by `benchmarks/claims.py`; mean "
        "± standard deviation over seeds. NFE: evaluations of the field on a whole batch, summed "
        "over one pass. A claim holds where HBNODE and GHBNODE both lie below all other models by "
        "more than the spread over seeds.", "",
        *settings(runs), *claims(runs),
    ]  # fmt: skip
    print("\n".join(text).rstrip())


if __name__ == "__main__":
    main()

"""The claims of the paper beside what run folders say, as the Markdown of docs/results.md.

hbnode compare TASK ...                        # for each task, with 3 or more seeds
python benchmarks/claims.py runs > docs/results.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

BASELINES, OURS = ("NODE", "ANODE", "SONODE"), ("HBNODE", "GHBNODE")
TRAINED = ("point-cloud", "mnist", "cifar10", "plane-vibration", "walker2d")
SEPARATED = 1e-3
LANDSCAPES, NEAR = ("rosenbrock", "beale"), 0.05


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
    mean, std = values.mean(), values.std(ddof=1) if values.size > 1 else None
    shown = f"{mean:.0f}" if abs(mean) >= 100 else f"{mean:.3g}"
    if std is None:
        return shown
    if std < 1e-12 * abs(mean):  # rounding alone
        std = 0.0
    return f"{shown} ± {std:.0f}" if std >= 10 else f"{shown} ± {std:.2g}"


class Claim(NamedTuple):
    """Something the paper says to be smaller for its models.

    `rows`: {task: {model: a value for each seed}}. `ours`: the models it is said of. `than`: those
    they are compared with.
    """

    title: str
    detail: str
    rows: dict[str, dict[str, np.ndarray]]
    ours: tuple[str, ...] = OURS
    than: tuple[str, ...] = BASELINES

    def verdict(self, task: str) -> str:
        """Whether it holds: by more than the spread over seeds, the root of the sum of both
        variances."""
        outcomes, values = [], self.rows[task]
        for ours in self.ours:
            for theirs in self.than:
                a, b = values.get(ours, np.array([])), values.get(theirs, np.array([]))
                if a.size and b.size:
                    spread = np.sqrt(sum(x.var(ddof=1) for x in (a, b) if x.size > 1))
                    gap = b.mean() - a.mean()
                    outcomes.append(1 if gap > spread else -1 if gap < -spread else 0)
        if not outcomes:
            return "not measured"
        below, above = outcomes.count(1), outcomes.count(-1)
        if below == len(outcomes):
            return "yes"
        if not below:
            return "no"
        within = len(outcomes) - below - above
        return (
            f"in part: of {len(outcomes)} pairs {below} lower, {within} within spread, "
            f"{above} higher"
        )

    def table(self) -> list[str]:
        """One line for each task."""
        models = (*BASELINES, *OURS)
        out = [f"### {self.title}", "", f"{self.detail}", ""]
        out += [f"| task | {' | '.join(models)} | holds? |", "|---|---|---|---|---|---|---|"]
        for task, values in self.rows.items():
            cells = [told(values.get(model, np.array([]))) for model in models]
            out.append(f"| {task} | " + " | ".join(cells) + f" | {self.verdict(task)} |")
        return [*out, ""]


def overview(claims: list[Claim]) -> list[str]:
    """Each claim, and the tasks by how far it holds."""
    out = ["| claim | holds | in part | does not hold |", "|---|---|---|---|"]
    for claim in claims:
        by_verdict: dict[str, list[str]] = {"yes": [], "in part": [], "no": []}
        for task in claim.rows:
            by_verdict.setdefault(claim.verdict(task).partition(":")[0], []).append(task)
        cells = [", ".join(by_verdict[v]) or "–" for v in ("yes", "in part", "no")]
        out.append(f"| {claim.title} | {' | '.join(cells)} |")
    return [*out, ""]


def by_model(runs: dict[str, Run], measure: Callable[[Run], np.ndarray]) -> dict[str, np.ndarray]:
    """`measure` of the runs with the method "paper"."""
    return {
        run.config["model"]: measure(run)
        for run in runs.values()
        if run.config["method"] == "paper"
    }


def all_claims(runs: dict[str, dict[str, Run]]) -> list[Claim]:
    def rows(tasks: Iterable[str], measure: Callable[[Run], np.ndarray]):
        return {task: by_model(runs[task], measure) for task in tasks if task in runs}

    claims = []
    for direction in ("forward", "backward"):
        nfe = f"nfe_{direction}"
        claims += [
            Claim(
                f"Fewer {direction} evaluations",
                "Mean over the updates since the last evaluation but one.",
                rows(TRAINED, lambda run, n=nfe: run.final("train", n)),
            ),
            Claim(
                f"Less growth of {direction} evaluations with training",
                "The last of these means over the first.",
                rows(TRAINED, lambda run, n=nfe: run.growth(n)),
            ),
            Claim(
                f"Less growth of {direction} evaluations with tolerance",
                "Of a trained model, at the smallest over at the largest tolerance of Fig. 7.",
                rows(["cifar10"], lambda run, n=nfe: steepness(run, n)),
            ),
        ]
    claims += [
        Claim(
            "Lower test loss", "At the end.", rows(TRAINED, lambda run: run.final("test", "loss"))
        ),
        Claim(
            "Slower decay of the adjoint",
            "Decades by which its norm falls from the last stamp to the first, trained model.",
            rows(("walker2d", "plane-vibration"), fall),
        ),
        Claim(
            "Bounded ‖h‖ before training (GHBNODE)",
            "Share of the initialisations with which ‖h(t)‖ exceeds 100 within 64 units of time.",
            rows(
                ["silverbox"],
                lambda run: np.array([np.mean(run.final("untrained", "norm_max") > 100)]),
            ),
            ours=("GHBNODE",),
            than=(*BASELINES, "HBNODE"),
        ),
    ]
    claims.append(
        Claim(
            "Separation of the point cloud",
            f"Share of the runs whose training MSE stays above {SEPARATED:g}.",
            rows(
                ["point-cloud"],
                lambda run: np.array([np.mean(run.final("full", "loss") >= SEPARATED)]),
            ),
        )
    )
    flows = [run for run in runs.get("descent", {}).values() if run.config["method"] == "paper"]
    claims.append(
        Claim(
            "Faster descent of the heavy-ball flow (HBNODE) than of the gradient flow (NODE)",
            f"Time until within {NEAR:g} of the minimum.",
            {
                name: {run.config["model"]: passage(run, name) for run in flows}
                for name in LANDSCAPES
            }
            if flows
            else {},
            ours=("HBNODE",),
            than=("NODE",),
        )
    )
    return [claim for claim in claims if claim.rows]


def passage(run: Run, landscape: str) -> np.ndarray:
    arrays = run.arrays("arrays.npz")
    return arrays[f"{landscape}_first_passage"][np.isclose(arrays["near"], NEAR)]


def steepness(run: Run, nfe: str) -> np.ndarray:
    arrays = run.arrays("closing.npz")
    counts, order = arrays[nfe].astype(float), np.argsort(arrays["tolerance"][0])
    return counts[:, order[0]] / counts[:, order[-1]]


def fall(run: Run) -> np.ndarray:
    norms = run.arrays("snapshots.npz")["adjoint_norms"][:, -1]
    return np.log10(norms[:, -1] / norms[:, 0])


def separation(runs: dict[str, Run]) -> list[str]:
    """Of a task with its models and methods."""
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
    for name in LANDSCAPES:
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
    claims = all_claims(runs)
    text = [
        "# Results", "",
        "What the paper claims, and what `quick` runs with the method `paper` (Dopri5, continuous "
        "adjoint with the full norm, cold starts) show here. Made by `benchmarks/claims.py` from "
        "run folders; mean ± standard deviation over seeds. NFE: evaluations of the field on a "
        "whole batch, summed over one pass. A claim holds on a task where HBNODE and GHBNODE both "
        "lie below NODE, ANODE and SONODE by more than the spread over seeds, in part where some "
        "of these pairs do, and does not hold where none does.", "",
        *overview(claims), "## Runs", "", *settings(runs), "## Claims", "",
        *(line for claim in claims for line in claim.table()),
        *(separation(runs["point-cloud"]) if "point-cloud" in runs else []),
        *(passages(runs["descent"]) if "descent" in runs else []),
    ]  # fmt: skip
    print("\n".join(text).rstrip())


if __name__ == "__main__":
    main()

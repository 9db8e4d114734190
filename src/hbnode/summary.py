"""The end of a run in numbers: per seed, and over the seeds. Both training and the report ask for
them, and the report knows nothing of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_NOT_MEASURES = ("seed", "step", "epoch", "split", "seconds", "diverged")
_HIGHER_IS_BETTER = ("accuracy",)


def summarise(lines: Sequence[dict], seeds: Sequence[int]) -> dict[str, Any]:
    """Final and best measures of every split: {split: {measure: {final: …, best: …}}}, each with
    the mean, the standard deviation (n − 1) and the value of every seed; and who diverged, when
    and why. Seeds that diverged are left out of the means."""
    diverged = {
        str(line["seed"]): {"step": line["step"], "reason": line["diverged"]}
        for line in lines
        if line.get("diverged")
    }
    good = [seed for seed in seeds if str(seed) not in diverged]
    splits: dict[str, Any] = {}
    for split in dict.fromkeys(line["split"] for line in lines):
        by_seed = {
            seed: [x for x in lines if x["seed"] == seed and x["split"] == split] for seed in good
        }
        names = [
            name
            for name in dict.fromkeys(key for rows in by_seed.values() for x in rows for key in x)
            if name not in _NOT_MEASURES
        ]
        splits[split] = {name: _measure(name, by_seed) for name in names}
    return {"seeds": list(seeds), "diverged": diverged, "splits": splits}


def _measure(name: str, by_seed: dict[int, list[dict]]) -> dict[str, Any]:
    values = {
        seed: np.array([np.nan if x.get(name) is None else x[name] for x in rows], float)
        for seed, rows in by_seed.items()
    }
    best = np.fmax.reduce if name in _HIGHER_IS_BETTER else np.fmin.reduce
    return {
        "final": _over_seeds({seed: v[-1] for seed, v in values.items() if v.size}),
        "best": _over_seeds({seed: best(v) for seed, v in values.items() if v.size}),
    }


def _over_seeds(values: dict[int, float]) -> dict[str, Any]:
    found = np.array([v for v in values.values() if np.isfinite(v)])
    return {
        "mean": float(found.mean()) if found.size else None,
        "std": float(found.std(ddof=1)) if found.size > 1 else None,
        "seeds": {str(seed): float(v) for seed, v in values.items()},
    }

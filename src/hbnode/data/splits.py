"""Which samples are dropped, and which are for training, validation and test: functions of a seed.

No two uses of one seed share random numbers, since every use has a stream of its own name.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

# The paper takes the stamps 0 to 73627 of the 73,728 of the F-16 data.
PLANE_VIBRATION_ROWS = 73628
# A little below the fewest that any of the seeds 0 to 9,999 leaves.
WALKER2D_WINDOWS = (8900, 900, 1500)


@dataclasses.dataclass(frozen=True)
class Forecasts:
    """Windows of one irregularly sampled series, and what comes after each of them.

    The `length` inputs of a window have the stamps t₀ < t₁ < …; the stamp that follows the last
    input belongs to the window as a target.

    - `inputs`: the normalised values at these stamps.
    - `gaps`: tᵢ₊₁ − tᵢ, in sampling intervals.
    - `targets`: the normalised values at tᵢ₊₁.
    - `forecast`: the normalised values at consecutive rows of the full series, the first of them
      the last target. Rows that were dropped are among them: they are to be predicted, not seen.
    - `horizons`: the time from the last input to each of them, in sampling intervals: the last gap
      plus 0, 1, 2, …, what the last interval is lengthened to.
    - `stamps`: the rows of the series at which inputs and targets stand, one more than `length`.
    """

    inputs: Float[np.ndarray, "windows length channels"]
    gaps: Float[np.ndarray, "windows length"]
    targets: Float[np.ndarray, "windows length channels"]
    forecast: Float[np.ndarray, "windows ahead channels"]
    horizons: Float[np.ndarray, "windows ahead"]
    stamps: Int[np.ndarray, "windows length+1"]


@dataclasses.dataclass(frozen=True)
class PlaneVibration:
    """The windows of the plane vibration data. `mean` and `std`, of the kept rows of the training
    part, are what all values were normalised with: (value − mean) / std."""

    train: Forecasts
    validation: Forecasts
    test: Forecasts
    mean: Float[np.ndarray, " channels"]
    std: Float[np.ndarray, " channels"]


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows of irregularly sampled rollouts.

    - `inputs`: the values at the stamps t₀ < t₁ < … of a window, as they are in the files.
    - `gaps`: (tᵢ₊₁ − tᵢ) / 64, tᵢ in sampling intervals.
    - `targets`: the values at tᵢ₊₁.
    - `rollouts`: which rollout a window was cut from.
    - `stamps`: the samples of that rollout at which inputs and targets stand.
    """

    inputs: Float[np.ndarray, "windows length channels"]
    gaps: Float[np.ndarray, "windows length"]
    targets: Float[np.ndarray, "windows length channels"]
    rollouts: Int[np.ndarray, " windows"]
    stamps: Int[np.ndarray, "windows length+1"]


@dataclasses.dataclass(frozen=True)
class Walker2D:
    """The windows of the Walker2D data, split by rollout."""

    train: Windows
    validation: Windows
    test: Windows


@dataclasses.dataclass(frozen=True)
class ImageSplit:
    """Indices into the training images, in random order: any first k are a random sample."""

    train: Int[np.ndarray, " train"]
    validation: Int[np.ndarray, " validation"]


def plane_vibration_windows(
    series: Float[np.ndarray, "rows channels"],
    seed: int,
    *,
    rows: int = PLANE_VIBRATION_ROWS,
    drop: float = 0.1,
    length: int = 64,
    ahead: int = 8,
) -> PlaneVibration:
    """The windows of the plane vibration task (paper, section 5.4).

    The first half in time is for training, the next quarter for validation, the last for test. In
    each part the fraction `drop` of the rows, exactly, is dropped at random; the rest is cut into
    windows of `length` + 1 stamps that do not overlap. Forecasts stay within their part, too.
    There are 509, 254 and 254 windows for every seed.

    **Arguments:** `series`: what `load_f16` returns. `rows`: how many of its rows are used.
    `length`: the inputs of a window. `ahead`: how many rows to forecast.
    """
    series = series[:rows]
    rng = _stream(seed, "plane vibration: dropped rows")
    borders = [round(fraction * len(series)) for fraction in (0.0, 0.5, 0.75, 1.0)]
    kept = [start + _keep(stop - start, drop, rng) for start, stop in itertools.pairwise(borders)]
    mean, std = series[kept[0]].mean(axis=0), series[kept[0]].std(axis=0)
    if not np.all(std > 0):
        raise ValueError(f"`series` has a constant column in its training part: std is {std}.")
    parts = [_forecasts((series - mean) / std, stamps, length, ahead) for stamps in kept]
    return PlaneVibration(*parts, mean=mean, std=std)


def walker2d_windows(
    rollouts: Sequence[Float[np.ndarray, "_ channels"]],
    seed: int,
    *,
    windows: tuple[int, int, int] = WALKER2D_WINDOWS,
    drop: float = 0.1,
    length: int = 64,
    stride: int = 16,
) -> Walker2D:
    """The windows of the Walker2D task (paper, section 5.5).

    75 % of the rollouts are for training, 10 % for validation, 15 % for test. From each rollout
    the fraction `drop` of the samples is dropped at random; what is kept is cut into windows of
    `length` inputs, which start every `stride` samples. Rollouts differ in length, so that the
    number of windows depends on the seed; a fixed number of them is drawn.

    **Arguments:** `rollouts`: what `load_walker2d` returns. `windows`: how many to draw for
    training, validation and test.

    **Raises** `ValueError` if there are fewer than that.
    """
    order = _stream(seed, "walker2d: split of the rollouts").permutation(len(rollouts))
    borders = [round(fraction * len(rollouts)) for fraction in (0.0, 0.75, 0.85, 1.0)]
    drops = _stream(seed, "walker2d: dropped samples")
    kept = [_keep(len(rollout), drop, drops) for rollout in rollouts]
    parts = []
    names = ("train", "validation", "test")
    for name, count, (start, stop) in zip(names, windows, itertools.pairwise(borders), strict=True):
        cuts = [
            (rollout, first)
            for rollout in sorted(order[start:stop].tolist())
            for first in range(0, len(kept[rollout]) - length, stride)
        ]
        if count > len(cuts):
            raise ValueError(
                f"`windows` asks for {count} {name} windows, and with seed {seed} there are "
                f"{len(cuts)}."
            )
        drawn = _stream(seed, f"walker2d: {name} windows").choice(len(cuts), count, replace=False)
        parts.append(_windows(rollouts, kept, [cuts[i] for i in np.sort(drawn)], length))
    return Walker2D(*parts)


def image_split(count: int, seed: int, *, validation: int = 5000) -> ImageSplit:
    """Sets `validation` of `count` training images aside at random."""
    if not 0 <= validation <= count:
        raise ValueError(f"`validation` must be from 0 to {count}, got {validation}.")
    order = _stream(seed, "images: split").permutation(count)
    return ImageSplit(train=order[validation:], validation=order[:validation])


def _stream(seed: int, name: str) -> np.random.Generator:
    """Random numbers for one use of a seed."""
    if seed < 0:
        raise ValueError(f"`seed` must not be negative, got {seed}.")
    return np.random.default_rng([seed, *name.encode()])


def _keep(count: int, drop: float, rng: np.random.Generator) -> np.ndarray:
    """What is left of 0, …, count − 1 when the fraction `drop` is dropped."""
    if not 0 <= drop < 1:
        raise ValueError(f"`drop` must be at least 0 and below 1, got {drop}.")
    return np.sort(rng.choice(count, count - round(drop * count), replace=False))


def _forecasts(series: np.ndarray, kept: np.ndarray, length: int, ahead: int) -> Forecasts:
    # The last window leaves at least `ahead` - 1 kept stamps to forecast before the part ends.
    count = (len(kept) - ahead + 1) // (length + 1)
    if count < 1:
        raise ValueError(
            f"`series` is too short: {len(kept)} stamps of one part are no window of {length + 1} "
            f"with {ahead - 1} more to forecast."
        )
    stamps = kept[: count * (length + 1)].reshape(count, length + 1)
    future = stamps[:, -1:] + np.arange(ahead)
    return Forecasts(
        inputs=series[stamps[:, :-1]],
        gaps=np.diff(stamps, axis=1).astype(float),
        targets=series[stamps[:, 1:]],
        forecast=series[future],
        horizons=(future - stamps[:, -2:-1]).astype(float),
        stamps=stamps,
    )


def _windows(
    rollouts: Sequence[np.ndarray],
    kept: Sequence[np.ndarray],
    cuts: Sequence[tuple[int, int]],
    length: int,
) -> Windows:
    channels = rollouts[0].shape[1]
    which = np.array([rollout for rollout, _ in cuts], dtype=int)
    stamps = [kept[rollout][first : first + length + 1] for rollout, first in cuts]
    stamps = np.array(stamps, dtype=int).reshape(len(cuts), length + 1)
    values = [rollouts[rollout][rows] for rollout, rows in zip(which, stamps, strict=True)]
    values = np.array(values, dtype=float).reshape(len(cuts), length + 1, channels)
    return Windows(
        inputs=values[:, :-1],
        gaps=np.diff(stamps, axis=1) / 64,
        targets=values[:, 1:],
        rollouts=which,
        stamps=stamps,
    )

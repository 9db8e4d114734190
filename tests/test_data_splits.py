"""Splits and dropped samples: functions of the seed, on data whose values tell where they are."""

import dataclasses

import numpy as np
import pytest

from hbnode.data import (
    DATASETS,
    image_split,
    plane_vibration_windows,
    walker2d_windows,
)

ROWS = 4000
# The value of a row is its number; the second channel goes the other way, twice as fast.
SERIES = np.arange(ROWS)[:, None] * np.array([1.0, -2.0])
PARTS = {"train": (0, 2000), "validation": (2000, 3000), "test": (3000, 4000)}
COUNTS = dict(windows=(40, 4, 6))


def rollouts(count=40, channels=3):
    """Row t of rollout r is r + t/10,000 in all channels."""
    lengths = 140 + 7 * np.arange(count) % 90
    return [np.full((n, channels), r) + np.arange(n)[:, None] / 1e4 for r, n in enumerate(lengths)]


def equal(a, b):
    """Whether two nested dataclasses hold the same numbers."""
    if dataclasses.is_dataclass(a):
        return all(equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return np.array_equal(a, b)


SPLITS = {
    "plane vibration": lambda seed: plane_vibration_windows(SERIES, seed),
    "walker2d": lambda seed: walker2d_windows(rollouts(), seed, **COUNTS),
    "images": lambda seed: image_split(100, seed, validation=20),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_is_a_function_of_the_seed(name):
    split = SPLITS[name]
    assert equal(split(3), split(3))
    assert not equal(split(3), split(4))
    with pytest.raises(ValueError, match="`seed` must not be negative, got -1"):
        split(-1)


# Plane vibration


@pytest.mark.parametrize(("length", "ahead"), [(64, 8), (1, 20)])
@pytest.mark.parametrize("part", PARTS)
def test_plane_vibration_windows_are_what_they_say(part, length, ahead):
    split = plane_vibration_windows(SERIES, 0, length=length, ahead=ahead)
    windows, (start, stop) = getattr(split, part), PARTS[part]
    stamps = windows.stamps
    assert stamps.shape[1:] == (length + 1,)
    assert windows.forecast.shape == (len(stamps), ahead, 2)
    # In order, without overlap, within the part.
    assert np.all(np.diff(stamps.ravel()) > 0)
    assert start <= stamps.min() and stamps.max() + ahead - 1 < stop

    def rows(values):
        found = values * split.std + split.mean
        np.testing.assert_allclose(found[..., 1], -2 * found[..., 0], atol=1e-6)
        return found[..., 0]

    np.testing.assert_allclose(rows(windows.inputs), stamps[:, :-1], atol=1e-6)
    np.testing.assert_allclose(rows(windows.targets), stamps[:, 1:], atol=1e-6)
    np.testing.assert_array_equal(windows.gaps, np.diff(stamps))
    future = stamps[:, -1:] + np.arange(ahead)
    np.testing.assert_allclose(rows(windows.forecast), future, atol=1e-6)
    np.testing.assert_array_equal(windows.horizons, future - stamps[:, -2:-1])
    np.testing.assert_array_equal(windows.horizons[:, 0], windows.gaps[:, -1])


def test_plane_vibration_drops_the_fraction_and_normalises_by_the_rest():
    split = plane_vibration_windows(SERIES, 0, length=1, ahead=1)
    for part, (start, stop) in PARTS.items():
        kept = getattr(split, part).stamps.ravel()
        assert len(kept) == 0.9 * (stop - start)
        if part == "train":
            np.testing.assert_allclose(split.mean, SERIES[kept].mean(axis=0))
            np.testing.assert_allclose(split.std, SERIES[kept].std(axis=0))
    whole = plane_vibration_windows(SERIES, 0, drop=0.0)
    assert np.all(whole.train.gaps == 1) and np.all(whole.train.horizons == np.arange(1, 9))


def test_plane_vibration_normalises_by_the_training_part_alone():
    changed = SERIES.copy()
    changed[2000:] *= 3
    one, other = plane_vibration_windows(SERIES, 0), plane_vibration_windows(changed, 0)
    assert equal(one.train, other.train) and equal(one.mean, other.mean)
    assert not equal(one.test, other.test)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_plane_vibration_sizes(seed):
    series = np.random.default_rng(0).normal(size=(73728, 2))
    split = plane_vibration_windows(series, seed)
    assert [len(getattr(split, part).stamps) for part in PARTS] == [509, 254, 254]
    assert split.test.stamps.max() < 73628


def test_plane_vibration_that_cannot_be_cut():
    with pytest.raises(ValueError, match="too short: 45 stamps"):
        plane_vibration_windows(SERIES[:200], 0)
    with pytest.raises(ValueError, match="constant column"):
        plane_vibration_windows(SERIES * np.array([1.0, 0.0]), 0)
    with pytest.raises(ValueError, match=r"`drop` must be at least 0 and below 1, got 1\.0"):
        plane_vibration_windows(SERIES, 0, drop=1.0)


# Walker2D


@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_walker2d_windows_are_what_they_say(part):
    windows = getattr(walker2d_windows(rollouts(), 0, **COUNTS), part)
    stamps = windows.stamps
    assert windows.inputs.shape == (len(stamps), 64, 3) and stamps.shape[1] == 65
    values = windows.rollouts[:, None, None] + stamps[..., None] / 1e4 + np.zeros(3)
    np.testing.assert_allclose(windows.inputs, values[:, :-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(windows.targets, values[:, 1:], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(windows.gaps * 64, np.diff(stamps))
    assert np.all(windows.gaps > 0)
    # No window twice.
    assert len(np.unique(np.column_stack([windows.rollouts, stamps[:, 0]]), axis=0)) == len(stamps)


def test_walker2d_splits_by_rollout():
    split = walker2d_windows(rollouts(), 0, **COUNTS)
    parts = [
        set(getattr(split, part).rollouts.tolist()) for part in ("train", "validation", "test")
    ]
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]
    assert len(parts[0]) <= 30 and len(parts[1]) <= 4 and len(parts[2]) <= 6


def test_walker2d_windows_start_every_stride():
    # 20 rollouts of 64 + 1 + 2·16 samples have three windows each: for training 15, 2 and 3.
    same = [np.zeros((97, 1))] * 20
    split = walker2d_windows(same, 0, windows=(45, 6, 9), drop=0.0)
    for part, count in (("train", 15), ("validation", 2), ("test", 3)):
        windows = getattr(split, part)
        assert sorted(windows.stamps[:, 0]) == sorted([0, 16, 32] * count)
        assert len(set(windows.rollouts)) == count
    message = "asks for 46 train windows, and with seed 0 there are 45"
    with pytest.raises(ValueError, match=message):
        walker2d_windows(same, 0, windows=(46, 6, 9), drop=0.0)
    fewer = [np.zeros((96, 1))] * 20
    with pytest.raises(ValueError, match="there are 30"):
        walker2d_windows(fewer, 0, windows=(45, 6, 9), drop=0.0)


def test_walker2d_drops_a_tenth_of_a_rollout():
    # With one window for each rollout that takes all that is kept, exactly.
    ten = [np.zeros((100, 1))] * 10
    split = walker2d_windows(ten, 0, windows=(8, 0, 2), length=89)
    stamps = split.train.stamps
    assert stamps.shape == (8, 90) and np.all(np.diff(stamps) >= 1) and stamps.max() <= 99
    assert len(np.unique(stamps, axis=0)) == 8  # different ones in each rollout
    with pytest.raises(ValueError, match="there are 0"):
        walker2d_windows(ten, 0, windows=(8, 0, 2), length=90)


# Of the seeds 0 to 9,999 those with the fewest windows for training, validation and test.
@pytest.mark.parametrize("seed", [2856, 6708, 1324])
def test_walker2d_has_enough_windows_for_every_seed(seed):
    steps = [((file.size or 0) - 128) // (17 * 8) for file in DATASETS["walker2d"].files]
    split = walker2d_windows([np.zeros((count, 1)) for count in steps], seed)
    assert [len(part.stamps) for part in (split.train, split.validation, split.test)] == [
        8900, 900, 1500
    ]  # fmt: skip


# Images


def test_an_image_split_takes_every_image_once():
    split = image_split(60000, 0)
    assert len(split.train) == 55000 and len(split.validation) == 5000
    both = np.concatenate([split.train, split.validation])
    np.testing.assert_array_equal(np.sort(both), np.arange(60000))
    # In random order: the first few are spread over all of them.
    assert abs(split.train[:1000].mean() - 30000) < 2500


@pytest.mark.parametrize("validation", [-1, 11])
def test_an_image_split_that_is_impossible(validation):
    with pytest.raises(ValueError, match="`validation` must be from 0 to 10"):
        image_split(10, 0, validation=validation)

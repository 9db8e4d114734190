"""The data sets as numpy arrays. Every byte that is read is checked first."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from .description import DataFile, Dataset, Form
from .fetching import archive_contents, ensure
from .store import (
    Status,
    check_bytes,
    data_dir,
    find_dataset,
    present_forms,
    wrong_file,
)

_CIFAR_ROW = 1 + 3 * 32 * 32


def load_mnist() -> tuple[
    UInt8[np.ndarray, "train 28 28"],
    Int[np.ndarray, " train"],
    UInt8[np.ndarray, "test 28 28"],
    Int[np.ndarray, " test"],
]:
    """MNIST: 60,000 images with labels to train with, and 10,000 with labels to test with."""
    dataset = find_dataset("mnist")
    read = {file.name: data for file, data in _contents(dataset, dataset.files)}
    arrays = [
        _idx(read[f"{part}-{kind}-ubyte.gz"])
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    return arrays[0], arrays[1].astype(np.int32), arrays[2], arrays[3].astype(np.int32)


def load_cifar10(
    batches: Sequence[int] = (1, 2, 3, 4, 5),
) -> tuple[
    UInt8[np.ndarray, "train 32 32 3"],
    Int[np.ndarray, " train"],
    UInt8[np.ndarray, "test 32 32 3"],
    Int[np.ndarray, " test"],
]:
    """CIFAR-10, channels last: 10,000 images with labels for each of the training `batches`, and
    10,000 to test with. Only the files of these batches and of the test batch are needed."""
    if not batches or len(set(batches)) < len(batches) or not set(batches) <= {1, 2, 3, 4, 5}:
        raise ValueError(f"`batches` must be different numbers from 1 to 5, got {batches!r}.")
    dataset = find_dataset("cifar10")
    names = [*(f"data_batch_{batch}.bin" for batch in batches), "test_batch.bin"]
    files = {file.name: file for file in dataset.files}
    read = {
        file.name: np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_ROW)
        for file, data in _contents(dataset, [files[name] for name in names])
    }
    train = np.concatenate([read[name] for name in names[:-1]])
    return *_cifar(train), *_cifar(read[names[-1]])


def load_f16() -> Float[np.ndarray, "rows 5"]:
    """The F-16 ground vibration test at 400 Hz, 73,728 rows. Columns: Force, Voltage,
    Acceleration1, Acceleration2, Acceleration3."""
    return _table("f16", columns=5)


def load_silverbox() -> Float[np.ndarray, "rows 2"]:
    """Silverbox at 610.35 Hz, 131,072 rows. Columns: V1 (input), V2 (output), in volts."""
    return _table("silverbox", columns=2)


def load_walker2d() -> list[Float[np.ndarray, "steps 17"]]:
    """Walker2D: 400 rollouts of 131 to 1,000 steps, in the order of their file names."""
    dataset = find_dataset("walker2d")
    read = {
        file.name: np.load(io.BytesIO(data), allow_pickle=False)
        for file, data in _contents(dataset, dataset.files)
    }
    return [read[file.name] for file in dataset.files]


def _table(name: str, columns: int) -> np.ndarray:
    """The first `columns` of a file with one line of titles. Its lines end in a comma, and the
    first has a further value."""
    dataset = find_dataset(name)
    ((_, data),) = _contents(dataset, dataset.files)
    return np.loadtxt(io.BytesIO(data), delimiter=",", skiprows=1, usecols=range(columns))


def _idx(data: bytes) -> np.ndarray:
    """An array of bytes in the IDX format: four bytes, of which the last is the rank, the shape,
    the values."""
    rank = data[3]
    shape = np.frombuffer(data, ">u4", count=rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _cifar(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels; a row is the label, then the red, green and blue planes."""
    planes = rows[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, 0].astype(np.int32)


def _contents(dataset: Dataset, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    """The checked and decompressed contents of `files`, not necessarily in order. What the data
    folder lacks is fetched."""
    root, done = data_dir(), set()
    missing = [file for file in files if not present_forms(file, root)]
    archive = dataset.archive
    if missing and archive is not None and (root / archive.path).is_file():
        for file, data in archive_contents(archive, root, missing):
            done.add(file.name)
            yield file, data
    if any(file.name not in done for file in missing):
        ensure(dataset, [file for file in missing if file.name not in done])
    for file in files:
        if file.name not in done:
            yield file, _read(file, root)


def _read(file: DataFile, root: Path) -> bytes:
    """The first form of a file that passes its check."""
    wrong: list[tuple[Form, Path, Status]] = []
    for form in present_forms(file, root) or [file]:
        path = root / form.path
        try:
            data = path.read_bytes()
        except OSError:
            wrong.append((form, path, Status.UNREADABLE))
            continue
        status = check_bytes(form, data)
        if status is Status.OK:
            return gzip.decompress(data) if form.name.endswith(".gz") else data
        wrong.append((form, path, status))
    raise wrong_file(*wrong[0])

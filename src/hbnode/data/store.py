"""The data folder: where files lie, and whether they are what they should be."""

from __future__ import annotations

import enum
import hashlib
import os
from pathlib import Path

import pooch

from .datasets import DATASETS
from .description import DataFile, Dataset, Form


class DataError(Exception):
    """Data that is missing, damaged or out of reach. The message says what to do."""


class Status(enum.StrEnum):
    """What was found in the place of a file."""

    OK = "ok"
    MISSING = "missing"
    TRUNCATED = "truncated"
    WRONG_SIZE = "wrong size"
    WRONG_CHECKSUM = "wrong checksum"
    UNREADABLE = "unreadable"


def data_dir() -> Path:
    """The data folder: `HBNODE_DATA_DIR` if it is set, otherwise the user's cache."""
    chosen = os.environ.get("HBNODE_DATA_DIR", "")
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("hbnode"))


def offline() -> bool:
    """Whether `HBNODE_OFFLINE` forbids downloads."""
    return os.environ.get("HBNODE_OFFLINE", "").lower() not in ("", "0", "false", "no", "off")


def find_dataset(dataset: str | Dataset) -> Dataset:
    """A data set by its name."""
    if isinstance(dataset, Dataset):
        return dataset
    if dataset not in DATASETS:
        raise DataError(
            f"There is no data set named {dataset!r}. The names are: {', '.join(DATASETS)}."
        )
    return DATASETS[dataset]


def check_size(form: Form, size: int) -> Status:
    """What the number of bytes says."""
    if form.size is None or size == form.size:
        return Status.OK
    return Status.TRUNCATED if size < form.size else Status.WRONG_SIZE


def check_bytes(form: Form, data: bytes) -> Status:
    """Whether `data` are the contents of `form`."""
    status = check_size(form, len(data))
    if status is not Status.OK or form.checksum is None:
        return status
    algorithm, expected = form.checksum
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    return Status.OK if found == expected else Status.WRONG_CHECKSUM


def check_file(form: Form, path: Path) -> Status:
    """Whether the file at `path` is `form`."""
    if not path.is_file():
        return Status.MISSING
    try:
        status = check_size(form, path.stat().st_size)
        if status is not Status.OK or form.checksum is None:
            return status
        algorithm, expected = form.checksum
        found = pooch.file_hash(str(path), alg=algorithm)
    except OSError:
        return Status.UNREADABLE
    return Status.OK if found == expected else Status.WRONG_CHECKSUM


def present_forms(file: DataFile, root: Path) -> list[Form]:
    """The forms of a file for which something lies in the data folder, the preferred one first."""
    return [form for form in (file, *file.others) if (root / form.path).is_file()]


def wrong_file(form: Form, path: Path, status: Status) -> DataError:
    """The error for a file in the data folder that cannot be trusted."""
    expected = [] if form.size is None else [f"{form.size} bytes"]
    found = []
    try:
        found.append(f"{path.stat().st_size} bytes")
        if form.checksum is not None:
            algorithm, checksum = form.checksum
            expected.append(f"{algorithm} {checksum}")
            found.append(f"{algorithm} {pooch.file_hash(str(path), alg=algorithm)}")
    except OSError as error:
        found.append(error.strerror or str(error))
    return DataError(
        f"{path} is not the file that hbnode expects ({status}), and is not used.\n"
        f"  expected: {', '.join(expected) or 'a zip or tar file'}\n"
        f"  found:    {', '.join(found)}\n"
        "Delete it, and hbnode downloads it again."
    )

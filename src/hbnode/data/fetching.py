"""Makes sure that data lie in the data folder, complete and checked."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .archives import is_archive, read_members
from .description import Archive, DataFile, Dataset, Form
from .download import download, part_of
from .progress import Progress
from .store import (
    DataError,
    Status,
    check_file,
    check_size,
    data_dir,
    find_dataset,
    offline,
    present_forms,
    wrong_file,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class Presence(NamedTuple):
    """How many files of a data set are there, going by their sizes."""

    present: int
    total: int


def fetch(dataset: str | Dataset, *, progress: bool = True) -> Path:
    """Downloads what a data set lacks, and returns the data folder.

    Every file is checked, also one that was there before. What is missing is downloaded to a file
    that ends in `.part`, checked, and only then given its name. An interrupted download goes on
    where it broke off. If nothing is missing, nothing is written.

    **Arguments:** `dataset`: a name out of `DATASETS`. `progress`: whether to show a progress bar
    on stderr.

    **Raises** `DataError` for a file that is not what it should be, or that cannot be downloaded.
    """
    found = find_dataset(dataset)
    ensure(found, found.files, progress=progress)
    return data_dir()


def verify(dataset: str | Dataset) -> list[tuple[Path, Status]]:
    """What a data set consists of in the data folder, each file with the result of its check.

    A file that may lie there in several forms has a line for each of them. Members of an archive
    that was put into the data folder are listed as if the archive were a folder.
    """
    found = find_dataset(dataset)
    root, rows, missing = data_dir(), [], []
    for file in found.files:
        forms = present_forms(file, root)
        rows += [(root / form.path, check_file(form, root / form.path)) for form in forms]
        if not forms:
            missing.append(file)
    archive = _local_archive(found, root)
    if archive is not None and missing:
        path = root / archive.path
        rows.append((path, _check_archive(archive, path)))
        members = {file.name: result for file, result, _ in read_members(path, missing)}
        rows += [(path / name, result) for name, result in members.items()]
        missing = [file for file in missing if file.name not in members]
    return rows + [(root / file.path, Status.MISSING) for file in missing]


def status(dataset: str | Dataset) -> Presence:
    """How much of a data set is there. Looks at names and sizes only."""
    found = find_dataset(dataset)
    root, total = data_dir(), len(found.files)
    archive = _local_archive(found, root)
    if archive is not None:
        size = (root / archive.path).stat().st_size
        if check_size(archive, size) is Status.OK:
            return Presence(total, total)
    present = sum(
        any(
            check_size(form, (root / form.path).stat().st_size) is Status.OK
            for form in present_forms(file, root)
        )
        for file in found.files
    )
    return Presence(present, total)


def ensure(dataset: Dataset, files: Sequence[DataFile], *, progress: bool = True) -> None:
    """Makes sure that some files of a data set are there and checked."""
    root = data_dir()
    lacking = _lacking(dataset, files, root)
    if not lacking:
        return
    if offline():
        raise DataError(
            f"{dataset.title}: {_files(len(lacking))} missing, and HBNODE_OFFLINE forbids "
            f"downloads.\nUnset it to download from\n{_addresses(dataset, lacking)}\n"
            f"{_by_hand(dataset, lacking, root)}"
        )
    try:
        with _locked(root / dataset.name):
            lacking = _lacking(dataset, files, root)
            if lacking:
                _download(dataset, lacking, root, progress)
    except OSError as error:
        raise DataError(
            f"{dataset.title}: {_files(len(lacking))} missing, and cannot be written:\n"
            f"  {error}\n"
            "Set HBNODE_DATA_DIR to a folder with room that you may write to.\n"
            f"{_by_hand(dataset, lacking, root)}"
        ) from error


def _lacking(dataset: Dataset, files: Sequence[DataFile], root: Path) -> list[DataFile]:
    """Those of `files` that are not there. Raises `DataError` for what is there but wrong."""
    lacking = []
    for file in files:
        wrong = []
        for form in present_forms(file, root):
            result = check_file(form, root / form.path)
            if result is Status.OK:
                break
            wrong.append((form, root / form.path, result))
        else:
            if wrong:
                raise wrong_file(*wrong[0])
            lacking.append(file)
    archive = _local_archive(dataset, root)
    if archive is not None and lacking:
        inside = {file.name for file, _ in archive_contents(archive, root, lacking)}
        lacking = [file for file in lacking if file.name not in inside]
    return lacking


def archive_contents(
    archive: Archive, root: Path, files: Sequence[DataFile]
) -> Iterator[tuple[DataFile, bytes]]:
    """Checked members of an archive in the data folder. Raises `DataError` for a wrong one."""
    path = root / archive.path
    seen = 0
    for file, result, data in read_members(path, files):
        if result is not Status.OK:
            raise DataError(
                f"{path} is damaged, and is not used: its member {file.name} has the status "
                f"{str(result)!r}.\nDelete it, and hbnode downloads it again."
            )
        seen += 1
        yield file, data
    # Some of the files may have been left out on purpose, but not because the archive is cut off.
    if seen < len(files):
        result = _check_archive(archive, path)
        if result is not Status.OK:
            raise wrong_file(archive, path, result)


def _local_archive(dataset: Dataset, root: Path) -> Archive | None:
    archive = dataset.archive
    return archive if archive is not None and (root / archive.path).is_file() else None


def _check_archive(archive: Archive, path: Path) -> Status:
    result = check_file(archive, path)
    if result is Status.OK and not is_archive(path):
        return Status.UNREADABLE
    return result


def _download(dataset: Dataset, lacking: list[DataFile], root: Path, shown: bool) -> None:
    tried: list[tuple[str, str]] = []
    if dataset.archive is not None:
        _download_archive(dataset, dataset.archive, root, shown, tried)
        lacking = [file for file in lacking if not present_forms(file, root)]
        if not lacking:
            return
    sizes = [file.size for file in lacking if file.size is not None]
    total = sum(sizes) if len(sizes) == len(lacking) else None
    with Progress(dataset.title, total, shown and any(file.urls for file in lacking)) as progress:
        for file in lacking:
            path = root / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            for url in file.urls:
                check = functools.partial(_fault, file)
                reason = download(url, part_of(path), file.size, check, progress)
                if reason is None:
                    os.replace(part_of(path), path)
                    break
                tried.append((url, reason))
            else:
                addresses = "\n".join(f"  {url}\n    {reason}" for url, reason in tried)
                raise DataError(
                    f"{dataset.title}: {file.name} could not be downloaded. Tried:\n"
                    f"{addresses or '  nothing, since no address is known'}\n"
                    f"{_by_hand(dataset, [file], root)}"
                )


def _download_archive(
    dataset: Dataset, archive: Archive, root: Path, shown: bool, tried: list[tuple[str, str]]
) -> None:
    """Downloads and unpacks the archive of a data set; adds to `tried` what went wrong.

    It is unpacked as it lies there, under the name that ends in `.part`, and deleted afterwards.
    """
    check = functools.partial(_unpack, dataset, archive, root)
    path = part_of(root / archive.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for url in archive.urls:
        with Progress(dataset.title, archive.size, shown) as progress:
            reason = download(url, path, archive.size, check, progress)
        if reason is None:
            path.unlink()
            return
        tried.append((url, reason))


def _unpack(dataset: Dataset, archive: Archive, root: Path, path: Path) -> str | None:
    """Writes the good members that the data folder lacks. Returns what is wrong with the archive
    at `path`, or `None`."""
    result = _check_archive(archive, path)
    if result is not Status.OK:
        return str(result)
    missing = [file for file in dataset.files if not present_forms(file, root)]
    faults = {file.name: Status.MISSING for file in missing}
    for file, result, data in read_members(path, missing):
        faults[file.name] = result
        if result is Status.OK:
            target = root / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            part_of(target).write_bytes(data)
            os.replace(part_of(target), target)
    wrong = (
        f"its member {name}: {result}" for name, result in faults.items() if result is not Status.OK
    )
    return next(wrong, None)


def _fault(form: Form, path: Path) -> str | None:
    """What is wrong with the file at `path`, or `None`."""
    result = check_file(form, path)
    return None if result is Status.OK else str(result)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time downloads into a folder. The lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another process that downloads to {folder}", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _files(count: int) -> str:
    return "1 file is" if count == 1 else f"{count} files are"


def _shortened(lines: list[str], most: int = 5) -> str:
    more = [f"  and {len(lines) - most} more"] if len(lines) > most else []
    return "\n".join([f"  {line}" for line in lines[:most]] + more)


def _addresses(dataset: Dataset, files: Sequence[DataFile]) -> str:
    archive = dataset.archive.urls if dataset.archive is not None else ()
    return _shortened([*archive, *(url for file in files for url in file.urls)])


def _by_hand(dataset: Dataset, files: Sequence[DataFile], root: Path) -> str:
    paths = _shortened([str(root / file.path) for file in files])
    whole = f"\nor all of them as\n  {root / dataset.archive.path}" if dataset.archive else ""
    return f"To put it there by hand, save it as\n{paths}{whole}\n{dataset.by_hand}"

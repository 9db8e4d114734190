"""Members of zip and tar files, checked one by one."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from .description import DataFile
from .store import Status, check_bytes

# What the two modules of the standard library raise for damaged input. RuntimeError: an encrypted
# member or an unknown compression.
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError)

_Members: TypeAlias = Iterator[tuple[DataFile, Status, bytes]]


def is_archive(path: Path) -> bool:
    """Whether `path` is a zip or tar file, as far as its head (tar) or directory (zip) tells."""
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except _DAMAGE:
        return False


def read_members(path: Path, files: Iterable[DataFile]) -> _Members:
    """Yields those of `files` that are in the archive, with what a look at the contents says.

    Members are recognised by their names without folders, and nothing is ever written where an
    archive says. A file that the archive has not, or that comes after damage in a tar file, is not
    yielded.
    """
    wanted = {file.name: file for file in files}
    try:
        zipped = zipfile.is_zipfile(path)
        yield from (_zip_members if zipped else _tar_members)(path, wanted)
    except _DAMAGE:
        return


def _zip_members(path: Path, wanted: dict[str, DataFile]) -> _Members:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            file = wanted.pop(name.rsplit("/", 1)[-1], None)
            if file is None:
                continue
            try:
                data = archive.read(name)
            except _DAMAGE:
                yield file, Status.UNREADABLE, b""
                continue
            yield file, check_bytes(file, data), data


def _tar_members(path: Path, wanted: dict[str, DataFile]) -> _Members:
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            file = wanted.pop(member.name.rsplit("/", 1)[-1], None) if member.isfile() else None
            if file is not None:
                contents = archive.extractfile(member)
                data = contents.read() if contents is not None else b""
                yield file, check_bytes(file, data), data
            if not wanted:
                return

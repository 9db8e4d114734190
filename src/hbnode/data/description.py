"""What a data set is made of: files with checksums, and addresses to get them from."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Form:
    """A file as it may lie in the data folder.

    - `path`: relative to the data folder, with forward slashes.
    - `size`: in bytes; `None` where nobody has published it.
    - `sha256`, `md5`: in hexadecimal. The sha256 is checked where it is known, else the md5. With
      neither (the zip of Walker2D) only the members can be checked.
    """

    path: str
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

    @property
    def checksum(self) -> tuple[str, str] | None:
        """The name of the checksum to use and its value, if one is known."""
        if self.sha256 is not None:
            return "sha256", self.sha256
        if self.md5 is not None:
            return "md5", self.md5
        return None


@dataclasses.dataclass(frozen=True)
class DataFile(Form):
    """A file that a data set needs.

    - `urls`: the primary address first, then its mirrors. Empty for a file that comes only in an
      archive.
    - `others`: further forms that are accepted in its place, such as the same file under the name
      of its address, or decompressed.
    """

    urls: tuple[str, ...] = ()
    others: tuple[Form, ...] = ()


@dataclasses.dataclass(frozen=True)
class Archive(Form):
    """A tar or zip file that holds all files of a data set, recognised by their names."""

    urls: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One data set.

    - `files`: what the loader reads.
    - `archive`: one download for all of them, tried before the addresses of the single files.
    - `megabytes`: roughly what has to be downloaded.
    - `licence`: what is known about it. No data is redistributed with this package.
    - `by_hand`: where people find the data if no address answers.
    """

    name: str
    title: str
    files: tuple[DataFile, ...]
    megabytes: int
    citation: str
    licence: str
    by_hand: str
    archive: Archive | None = None

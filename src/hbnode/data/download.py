"""One file from one address, continued where an earlier attempt broke off.

The downloader of pooch starts from nothing every time, and does not tell an answer to a `Range`
request (206) from the whole file (200); so the transfer is our own, on requests, which pooch
brings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import requests
import urllib3

from .progress import Progress

TIMEOUT = (10.0, 30.0)  # seconds, to connect and between two pieces
ATTEMPTS = 3
_CHUNK = 1 << 18


class _Unusable(Exception):
    """An answer that is not the file. The message is the reason."""


def part_of(path: Path) -> Path:
    """Where a file lies until it is complete and checked."""
    return path.with_name(path.name + ".part")


def download(
    url: str,
    part: Path,
    size: int | None,
    check: Callable[[Path], str | None],
    progress: Progress,
) -> str | None:
    """Completes `part` from `url`. Returns `None`, or the reason why that failed.

    `check` gets the complete file and returns what is wrong with it, or `None`. A connection that
    breaks leaves `part` as it is, to be continued; contents that fail the check are deleted. If
    they were continued from an earlier attempt, which may have seen another file, they are
    fetched once more from the start.
    """
    progress.add(_size(part))
    reason = "no attempt was made"
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _transfer(url, part, size, progress)
        except (requests.RequestException, urllib3.exceptions.HTTPError, _Unusable) as error:
            reason = _describe(error)
            if _size(part) == before:  # nothing came, so it would be the same again
                break
            continue
        reason = check(part)
        if reason is None:
            return None
        _discard(part, progress)
        if before == 0:
            break
    # The next address counts what is kept once more.
    progress.add(-_size(part))
    return reason


def _transfer(url: str, part: Path, size: int | None, progress: Progress) -> None:
    offset = _size(part)
    if size is not None and offset > size:
        _discard(part, progress)
        offset = 0
    if size is not None and offset == size:
        return
    # Packed on the way, a range would count packed bytes.
    headers = {"Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == 416 and offset:
            if response.headers.get("Content-Range", "") == f"bytes */{offset}":
                return  # it is complete
            _discard(part, progress)
            raise _Unusable("the server refused to continue an earlier download")
        if response.status_code not in (200, 206):
            raise _Unusable(f"HTTP {response.status_code} {response.reason}")
        resumed = response.status_code == 206
        total = _total(response, offset)
        if size is not None and total is not None and total != size:
            raise _Unusable(f"it has {total} bytes there instead of {size}")
        if total is not None:
            progress.expect(total)
        if offset and not resumed:
            progress.add(-offset)
        with open(part, "ab" if resumed else "wb") as file:
            for chunk in response.raw.stream(_CHUNK, decode_content=False):
                file.write(chunk)
                progress.add(len(chunk))
                if size is not None and file.tell() > size:
                    break
    received = _size(part)
    if total is not None and received < total:
        raise _Unusable(f"the connection broke off after {received} of {total} bytes")


def _total(response: requests.Response, offset: int) -> int | None:
    """The size of the whole file, if the server tells."""
    if response.status_code == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != offset:
            raise _Unusable("the server sent another part of the file than it was asked for")
        return None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _discard(part: Path, progress: Progress) -> None:
    progress.add(-_size(part))
    part.unlink(missing_ok=True)


def _describe(error: Exception) -> str:
    """The last link of the chain of reasons that requests strings together."""
    if isinstance(error, _Unusable):
        return str(error)
    if isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
        return "no answer in time"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection broke off"
    text = str(error).rsplit(": ", 1)[-1].strip("()'\" ,")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""The folder of a run: what is in it, and how it is written so that nothing is ever half there.

config.json        all settings
environment.json   versions, machine, git revision, command
metrics.jsonl      one line for each seed, evaluation and split
summary.json       written last: a folder that has it is finished
*.npz              arrays for figures
checkpoint/        what `--resume` continues from
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGES = ("hbnode", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy")


class RunError(Exception):
    """A run folder that cannot be used. The message says what to do."""


class RunFolder:
    """A folder that this process writes to, and no other as long as it is open.

    **Arguments:** `path`: where. `config`: all settings, as plain JSON values. `resume`: whether to
    continue a run that is there; it must have the same settings. `overwrite`: whether to delete a
    run that is there.
    """

    def __init__(self, path: Path, config: dict, *, resume: bool = False, overwrite: bool = False):
        self.path, self.config = Path(path), config
        there = (self.path / "config.json").exists()
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is not a folder: choose another place with --out.")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise RunError(f"{self.path} is in use by another process.") from None
        try:
            self._claim(there, resume, overwrite)
        except BaseException:
            self.close()
            raise

    def _claim(self, there: bool, resume: bool, overwrite: bool) -> None:
        """Makes the folder that of this run, or says why it is not."""
        if there and overwrite:
            self._clear()
            there = False
        if there and not resume:
            raise RunError(
                f"{self.path} has a run already: go on with it (--resume), delete it "
                "(--overwrite), or choose another place (--out)."
            )
        if there:
            self._check_same()
        else:
            self.write_json("config.json", self.config)

    def _clear(self) -> None:
        # The settings go last: what is left when this is interrupted is known as a run.
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == "config.json"):
            if entry.name != ".lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def _check_same(self) -> None:
        old, new = flatten(read_json(self.path / "config.json")), flatten(plain(self.config))
        changed = [
            f"  {key}: {old.get(key, 'not there')} in the folder, {new.get(key, 'not there')} now"
            for key in sorted(old.keys() | new.keys())
            if old.get(key, ...) != new.get(key, ...)
        ]
        if changed:
            raise RunError(
                f"{self.path} has a run with other settings:\n" + "\n".join(changed) + "\n"
                "Give the same settings, or choose another place with --out."
            )

    def write_json(self, name: str, content: Any) -> None:
        write_whole(self.path / name, json.dumps(plain(content), indent=2).encode() + b"\n")

    def write_metrics(self, lines: Iterable[dict]) -> None:
        text = "".join(json.dumps(plain(line)) + "\n" for line in lines)
        write_whole(self.path / "metrics.jsonl", text.encode())

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        write_whole(self.path / name, pack(arrays))

    def save_checkpoint(self, arrays: dict[str, np.ndarray], told: dict) -> None:
        """`told`: plain JSON values to keep beside the arrays."""
        note = np.frombuffer(json.dumps(plain(told)).encode(), np.uint8)
        (self.path / "checkpoint").mkdir(exist_ok=True)
        write_whole(self.path / "checkpoint" / "latest.npz", pack(arrays | {"told": note}))

    def load_checkpoint(self) -> tuple[dict[str, np.ndarray], dict] | None:
        """What was saved last, or `None`."""
        path = self.path / "checkpoint" / "latest.npz"
        if not path.exists():
            return None
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays = dict(file)
            return arrays, json.loads(arrays.pop("told").tobytes())
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(f"{path} is damaged ({error}): start anew with --overwrite.") from None

    @property
    def summary(self) -> dict | None:
        """The summary of a finished run."""
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that is either as it was or complete, whenever the process ends."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz file. Equal arrays give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}).") from None


def plain(x: Any) -> Any:
    """As JSON values; a number that is not finite becomes null."""
    if isinstance(x, dict):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(value) for value in x]
    if isinstance(x, (np.ndarray, np.generic)):
        return plain(x.tolist())
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return x


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} ↦ {"a.b": 1}"""
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {
        name: leaf
        for key, value in tree.items()
        for name, leaf in flatten(value, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def environment(**more: Any) -> dict:
    """What a run was made with."""
    return {
        "command": ["hbnode", *sys.argv[1:]],
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
        "machine": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "git": git_revision(),
        **more,
    }


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def git_revision() -> str | None:
    """The revision of the source, with a + where it was changed; `None` outside a clone."""
    here = Path(__file__).parent

    def git(*args: str) -> str:
        command = ["git", "-C", str(here), *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None

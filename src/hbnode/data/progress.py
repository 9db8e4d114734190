"""How far a download is: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys

import tqdm


class Progress:
    """Counts bytes on stderr. `total` may become known later, by `expect`."""

    def __init__(self, title: str, total: int | None, shown: bool = True):
        self._title, self._total, self._done, self._quarters = title, total, 0, 0
        terminal = shown and sys.stderr.isatty()
        self._plain = shown and not terminal
        self._bar = (
            tqdm.tqdm(total=total, desc=title, unit="B", unit_scale=True, file=sys.stderr)
            if terminal
            else None
        )
        if self._plain:
            size = "" if total is None else f", {total / 1e6:.1f} MB"
            print(f"Downloading {title}{size}", file=sys.stderr)

    def expect(self, total: int) -> None:
        """The number of bytes that there will be, where it was not known before."""
        if self._total is None:
            self._total = total
            if self._bar is not None:
                self._bar.total = total

    def add(self, count: int) -> None:
        """`count` more bytes are there; negative when some were thrown away."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
        elif self._plain and self._total:
            quarters = 4 * self._done // self._total
            if quarters > self._quarters:
                print(f"  {self._title}: {25 * quarters} %", file=sys.stderr)
            self._quarters = max(quarters, self._quarters)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.close()

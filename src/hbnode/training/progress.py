"""How far training is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time

import tqdm

PLAIN_SECONDS = 15.0


class Progress:
    """Shows epoch, loss, NFE and the time left, on stderr."""

    def __init__(self, title: str, updates: int, per_epoch: int, done: int = 0):
        self._title, self._updates, self._per_epoch = title, updates, per_epoch
        self._first = self._done = done
        self._began = self._told = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(
                total=updates, initial=done, desc=title, unit="update", file=sys.stderr,
                dynamic_ncols=True,
            )  # fmt: skip

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.write(f"{self._title}: {text}", file=sys.stderr)
        else:
            print(f"{self._title}: {text}", file=sys.stderr, flush=True)

    def update(self, done: int, loss: float, forward: float, backward: float) -> None:
        """`done` updates are there; means over the seeds of the last of them."""
        state = (
            f"epoch {done / self._per_epoch:.4g}, loss {loss:.4g}, "
            f"NFE {forward:.0f} forward {backward:.0f} backward"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(state, refresh=False)
            self._bar.update(done - self._done)
        elif time.monotonic() - self._told > PLAIN_SECONDS or done == self._updates:
            self._told = time.monotonic()
            each = (self._told - self._began) / max(done - self._first, 1)
            left = (self._updates - done) * each
            self.say(f"update {done} of {self._updates}, {state}, {left:.0f} s left")
        self._done = done

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

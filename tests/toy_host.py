"""A host for tests of executors: every block counts its calls and can do harm when told to."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any


class Picky(Exception):
    """An exception that cannot be made again from its arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class ToyHost:
    """Blocks are counters. ``call`` returns what a method says for each block, in turn."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.counts: dict[int, int] = {}
        self.commons = 0

    def call(self, method: str, common: Any, own: dict[int, Any]) -> dict[int, Any]:
        self.commons += 1
        return {k: getattr(self, method)(k, common, mine) for k, mine in own.items()}

    def count(self, k: int, common: Any, mine: Any) -> int:
        """How many times the block has been asked, itself included."""
        self.counts[k] = self.counts.get(k, self.offset) + 1
        return self.counts[k]

    def drop(self, k: int, common: Any, mine: Any) -> None:
        del self.counts[k]

    def add(self, k: int, common: Any, mine: Any) -> Any:
        return common + mine

    def pid(self, k: int, common: Any, mine: Any) -> int:
        return os.getpid()

    def threads(self, k: int, common: Any, mine: Any) -> set[int]:
        """Threads of linear algebra."""
        from threadpoolctl import threadpool_info

        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    def commons_seen(self, k: int, common: Any, mine: Any) -> int:
        return self.commons

    def fail(self, k: int, common: list[int], mine: Any) -> int:
        if k in common:
            error = ValueError(f"block {k} is bad")
            error.block = k  # type: ignore[attr-defined]
            raise error
        return self.count(k, None, None)

    def fail_oddly(self, k: int, common: Any, mine: Any) -> None:
        raise Picky("this", "that")

    def answer_oddly(self, k: int, common: Any, mine: Any) -> Any:
        return threading.Lock()  # which cannot be pickled

    def die(self, k: int, common: list[int], mine: Any) -> int:
        """Kill the worker at the blocks named."""
        if k in common:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.count(k, None, None)

    def leave(self, k: int, common: Any, mine: Any) -> None:
        """End the process as an exception outside of any host does."""
        os._exit(1)

    def sleep(self, k: int, common: float, mine: float | None) -> int:
        time.sleep(common if mine is None else mine)
        return self.count(k, None, None)

    def write_and_sleep(self, k: int, common: str, mine: Any) -> None:
        """Leave the process's number in a folder, then be busy."""
        (Path(common) / str(k)).write_text(str(os.getpid()))
        time.sleep(60)


class BadHost:
    """Cannot be made."""

    def __init__(self) -> None:
        raise OSError("no such corpus")

"""One answer of Slurm for all who ask at the same time, as the nodes of a whole cluster may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .gate import Refused

T = TypeVar("T")


class Shared(Generic[T]):
    """Fetches once for many. Whoever asks gets an answer that was begun after he asked, never one before."""

    def __init__(self, fetch: Callable[[], T]) -> None:
        """`fetch` may raise Refused, which all who wait for that answer then get."""
        self._fetch = fetch
        self._changed = threading.Condition()
        self._begun = 0
        self._fetching = False
        self._last: tuple[int, T | Refused] | None = None

    def get(self) -> T:
        with self._changed:
            wanted = self._begun + 1
            while self._fetching and self._answer_from(wanted) is None:
                self._changed.wait()
            ready = self._answer_from(wanted)
            if ready is None:
                self._begun += 1
                self._fetching = True
                number = self._begun
        (answer,) = ready or (self._fetch_as(number),)
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _answer_from(self, wanted: int) -> tuple[T | Refused] | None:
        if self._last is None or self._last[0] < wanted:
            return None
        return (self._last[1],)

    def _fetch_as(self, number: int) -> T | Refused:
        answer: T | Refused = Refused(500, "failed", "the question to Slurm was not put")
        try:
            answer = self._fetch()
        except Refused as refused:
            answer = refused
        finally:
            with self._changed:
                self._last = (number, answer)
                self._fetching = False
                self._changed.notify_all()
        return answer

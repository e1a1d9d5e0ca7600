"""What the cloud was asked, for checking rate budgets from the provider's side."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

MAX_ENTRIES = 200_000
IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request. `at` is real time in seconds from an arbitrary start.

    `region` is "identity" for the identity service, which serves all regions.
    """

    at: float
    region: str
    method: str
    path: str


class RequestLog:
    """The last 200,000 requests to the services of the cloud. Rates are in real time, never cloud time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._entries: deque[LoggedRequest] = deque(maxlen=MAX_ENTRIES)

    def record(self, region: str, method: str, path: str) -> None:
        self._entries.append(LoggedRequest(self._monotonic(), region, method, path))

    def clear(self) -> None:
        self._entries.clear()

    def recent(self, limit: int) -> list[LoggedRequest]:
        """The last `limit` requests, newest first."""
        return list(islice(reversed(self._entries), limit))

    def summary(self, window_seconds: float = 1.0) -> dict[str, object]:
        """Per region: total, calls by method, and the most calls within any `window_seconds`."""
        regions = sorted({entry.region for entry in self._entries})
        return {
            "window_seconds": window_seconds,
            "regions": {region: self._of_region(region, window_seconds) for region in regions},
        }

    def _of_region(self, region: str, window_seconds: float) -> dict[str, object]:
        entries = [entry for entry in self._entries if entry.region == region]
        start = entries[0].at
        seconds = Counter(int(entry.at - start) for entry in entries)
        return {
            "total": len(entries),
            "by_method": dict(Counter(entry.method for entry in entries)),
            "per_second": [seconds[second] for second in range(max(seconds) + 1)][-3_600:],
            "max_in_window": _most_within([entry.at for entry in entries], window_seconds),
        }


def _most_within(times: list[float], window_seconds: float) -> int:
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= window_seconds:
            first += 1
        most = max(most, last - first + 1)
    return most

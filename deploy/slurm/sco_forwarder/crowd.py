"""Who is served when more come than can be: whoever has the most connections gives way."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from socket import SHUT_RDWR, socket

# A connection that was told to go is gone within moments; whoever comes next waits meanwhile.
MAKE_ROOM_SECONDS = 0.5


class Crowd:
    """At most so many connections at once. Nobody at one address can keep those at others out."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._inside: dict[int, tuple[str, socket]] = {}

    def let_in(self, connection: socket, address: str) -> bool:
        """Whether there is a place; where not, the oldest of those who have the most loses its own."""
        try:
            # TLS takes the socket itself away; a copy that is shut down ends the connection all the same.
            copy = connection.dup()
        except OSError:
            return False
        if not self._free.acquire(blocking=False) and not self._makes_room_for(address):
            copy.close()
            return False
        with self._lock:
            self._inside[id(connection)] = (address, copy)
        return True

    def _makes_room_for(self, address: str) -> bool:
        with self._lock:
            held = Counter(each for each, _ in self._inside.values())
            crowded, places = held.most_common(1)[0]
            if places <= held[address] + 1:
                return False
            oldest = next(copy for each, copy in self._inside.values() if each == crowded)
            with suppress(OSError):
                oldest.shutdown(SHUT_RDWR)
        return self._free.acquire(timeout=MAKE_ROOM_SECONDS)

    def leave(self, connection: socket) -> None:
        """Give back the place of a connection that was let in."""
        with self._lock:
            self._inside.pop(id(connection))[1].close()
        self._free.release()

"""Results are staged while the work runs, and published once, when all of it is done.

There is one commit point: the object that names the published files. It is written only while none is there.
Where the store knows conditions, looking and writing are one step, and no result ever takes another's place.
Where it does not, they are two, and the lease alone keeps a second writer out between them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from clients.checkpoint.clock import Clock
from clients.checkpoint.errors import MissingError, StoreDownError, StoreRefusedError
from clients.checkpoint.generations import Content
from clients.checkpoint.layout import PUBLISHED, STAGED, staged_prefix
from clients.checkpoint.lease import Lease
from clients.checkpoint.manifest import File, Manifest, read_manifest, write_manifest
from clients.checkpoint.rooms import Room
from clients.checkpoint.writing import State, named, write_files

log = logging.getLogger(__name__)
UNGUARDED = (
    "the store takes no conditional writes: a result of %s is published once only as long as this writer is"
    " not held up for a whole lease period while it publishes"
)


class Outputs:
    """What one run of a workload has staged."""

    def __init__(
        self, room: Room, hold: Callable[[], Lease], new_id: Callable[[], str], part_bytes: int, clock: Clock
    ) -> None:
        """`hold` answers the lease, held for at least a while from now."""
        self._room, self._hold, self._new_id = room, hold, new_id
        self._part_bytes, self._clock = part_bytes, clock
        self._files: dict[str, File] = {}

    def stage(self, name: str, data: State) -> None:
        """Write one result aside; the same name again replaces it. Nobody sees it before it is published."""
        if not isinstance(data, bytes):
            raise TypeError(f"a result is bytes, not {type(data).__name__}")
        files = named({name: data})
        lease = self._hold()
        prefix = f"{staged_prefix(lease.token, lease.writer)}{self._new_id()}/"
        [file] = write_files(self._room, files, prefix, self._part_bytes)
        self._files[name] = file

    def publish(self) -> Content:
        """Make all that was staged the result of this workload, unless there is one already.

        Answers what is published, by this run or by an earlier one. Says in the log when only the lease keeps
        it from being replaced.
        """
        already = published(self._room)
        if already is not None:
            return already
        lease = self._hold()
        if not lease.is_guarded():
            log.warning(UNGUARDED, self._room.workload)
        # Last of all: what is done between this and the write is the time in which another may take over.
        lease.renew()
        mine = Manifest(
            workload=self._room.workload,
            token=lease.token,
            generation=0,
            writer=lease.writer,
            created_at=self._clock.now(),
            final=True,
            files=tuple(file for _, file in sorted(self._files.items())),
        )
        self._room.put_new(PUBLISHED, write_manifest(mine))
        # Whoever's it is: what stands there now is the result.
        result = published(self._room)
        if result is None:
            raise StoreDownError("the store took the result and does not have it: publish it again")
        self._clear(result)
        return result

    def _clear(self, result: Content) -> None:
        """Staged files of runs that did not come to the end."""
        spared = {part.key for part in result.manifest.parts()}
        with suppress(StoreDownError, StoreRefusedError):
            for key in self._room.list(STAGED):
                if key not in spared:
                    self._room.delete(key)


def published(room: Room) -> Content | None:
    """The result of a workload, None while there is none. Reading it needs no lease."""
    try:
        content = room.get(PUBLISHED)
    except MissingError:
        return None
    return Content(room, read_manifest(content, PUBLISHED))

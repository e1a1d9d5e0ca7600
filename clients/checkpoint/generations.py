"""The generations that exist: those with a manifest and all of its parts. Reading needs no lease."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from clients.checkpoint.errors import DamagedError, MissingError
from clients.checkpoint.layout import HEAD, MANIFESTS, Order, manifest_key, manifest_order
from clients.checkpoint.manifest import File, Manifest, Part, digest, read_manifest, unseal
from clients.checkpoint.rooms import Room

log = logging.getLogger(__name__)


class Content:
    """Files under one manifest. Every part is checked when it is read."""

    def __init__(self, room: Room, manifest: Manifest) -> None:
        self._room = room
        self.manifest = manifest

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.manifest.files)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return self.manifest.bytes

    def read(self, name: str = "state") -> bytes:
        """A file's content. KeyError when there is no such file, DamagedError when it is not as written."""
        return b"".join(self._parts(self._file(name)))

    def copy_to(self, folder: str | os.PathLike[str]) -> None:
        """Write all files below a folder. DamagedError leaves none of the damaged file there."""
        for file in self.manifest.files:
            target = Path(folder, file.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f"{target.name}.partial")
            try:
                with aside.open("wb") as out:
                    self._copy(file, out)
                aside.replace(target)
            finally:
                aside.unlink(missing_ok=True)

    def check(self) -> None:
        """Read everything once. DamagedError when anything is missing or not as written."""
        for file in self.manifest.files:
            for _ in self._parts(file):
                pass

    def check_sizes(self) -> None:
        """The same by the sizes of the parts alone, without reading them."""
        for part in self.manifest.parts():
            size = self._room.size(part.key)
            if size != part.bytes:
                raise DamagedError(f"{part.key} has {size} bytes, {part.bytes} were written")

    def _copy(self, file: File, out: BinaryIO) -> None:
        for content in self._parts(file):
            out.write(content)

    def _file(self, name: str) -> File:
        for file in self.manifest.files:
            if file.name == name:
                return file
        raise KeyError(f"there is no file {name!r}, only {', '.join(self.files)}")

    def _parts(self, file: File) -> Iterator[bytes]:
        for part in file.parts:
            yield read_part(self._room, part)


class Checkpoint(Content):
    """One complete generation."""

    @property
    def generation(self) -> int:
        return self.manifest.generation

    @property
    def final(self) -> bool:
        """Whether it was written upon a notice, so that no later one was to be expected."""
        return self.manifest.final

    @property
    def created_at(self) -> datetime:
        return self.manifest.created_at


def read_part(room: Room, part: Part) -> bytes:
    try:
        content = room.get(part.key)
    except MissingError:
        raise DamagedError(f"{part.key} is missing") from None
    if len(content) != part.bytes or digest(content) != part.sha256:
        raise DamagedError(f"{part.key} is not what was written")
    return content


def orders(room: Room) -> list[Order]:
    """All generations that have a manifest, the newest first. Of two with one number, the token decides."""
    found = {order for order in map(manifest_order, room.list(MANIFESTS)) if order is not None}
    hint = _hint(room)
    if hint is not None and hint not in found and room.size(manifest_key(hint)) is not None:
        found.add(hint)
    return sorted(found, reverse=True)


def read(room: Room, order: Order) -> Manifest:
    """The manifest under its key. MissingError, or DamagedError when it says something else than its key."""
    key = manifest_key(order)
    manifest = read_manifest(room.get(key), key)
    if Order(manifest.token, manifest.generation, manifest.writer) != order:
        raise DamagedError(f"{key} tells of another generation")
    if manifest.workload != room.workload:
        raise DamagedError(f"{key} tells of workload {manifest.workload[:100]!r}")
    return manifest


def latest(room: Room, *, verify: bool) -> Checkpoint | None:
    """The newest generation that is whole; one that is damaged is passed over for the one before.

    StoreDownError when the store does not answer: that is no reason to begin from an older one.
    """
    for order in orders(room):
        try:
            checkpoint = Checkpoint(room, read(room, order))
            if verify:
                checkpoint.check()
            else:
                checkpoint.check_sizes()
        except MissingError:
            continue
        except DamagedError as error:
            log.warning("generation %d of %s is passed over: %s", order.generation, room.workload, error)
            continue
        return checkpoint
    return None


def _hint(room: Room) -> Order | None:
    with suppress(MissingError, DamagedError, KeyError, TypeError):
        fields = unseal(room.get(HEAD), HEAD)
        return manifest_order(fields["manifest"])
    return None

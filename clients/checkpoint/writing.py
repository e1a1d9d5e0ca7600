"""Writes content to a store: parts under names that nobody else uses, then whatever makes them exist."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from clients.checkpoint.manifest import MAX_FILES, File, Part, checked_name, digest
from clients.checkpoint.rooms import Room

State = bytes | Mapping[str, bytes | os.PathLike[str]]

ONLY_FILE = "state"


def named(state: State) -> dict[str, bytes | os.PathLike[str]]:
    """The files of a state by name; mere bytes are one file. ValueError, TypeError: it cannot be kept."""
    if isinstance(state, bytes | bytearray | memoryview):
        return {ONLY_FILE: bytes(state)}
    if not isinstance(state, Mapping):
        raise TypeError(
            f"a state is bytes or a mapping of names to bytes or paths, not {type(state).__name__}"
        )
    if len(state) > MAX_FILES:
        raise ValueError(f"{len(state)} files are too many, at most {MAX_FILES}: pack them")
    for name, content in state.items():
        checked_name(name)
        if not isinstance(content, bytes | os.PathLike):
            raise TypeError(f"the content of {name!r} is bytes or a path, not {type(content).__name__}")
    return dict(state)


def write_files(
    room: Room, files: Mapping[str, bytes | os.PathLike[str]], prefix: str, part_bytes: int
) -> tuple[File, ...]:
    """Write every file as parts below `prefix`. OSError when a file of the workload cannot be read."""
    written = []
    for number, (name, content) in enumerate(sorted(files.items())):
        parts = []
        for index, piece in enumerate(_pieces(content, part_bytes)):
            part = Part(f"{prefix}{number:05d}-{index:06d}", len(piece), digest(piece))
            room.put(part.key, piece)
            parts.append(part)
        written.append(File(name, tuple(parts)))
    return tuple(written)


def _pieces(content: bytes | os.PathLike[str], part_bytes: int) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), part_bytes):
            yield content[start : start + part_bytes]
        return
    with Path(content).open("rb") as file:
        while piece := file.read(part_bytes):
            yield piece

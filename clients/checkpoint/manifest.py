"""Manifests: which parts make up which files, with their checksums. What has no manifest does not exist.

A manifest is one line of JSON and a second line with the SHA-256 of the first, so that it can be checked in
any language without agreeing on a form of JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clients.checkpoint.errors import DamagedError
from clients.checkpoint.layout import MAX_NUMBER

FORMAT = 1
MAX_FILES = 10_000
MAX_NAME = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Part:
    """One object; `key` is relative to the workload's prefix."""

    key: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class File:
    """One file of a generation, whose content is that of its parts one after the other."""

    name: str
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Manifest:
    """One complete generation (or the published outputs, whose generation is 0)."""

    workload: str
    token: int
    generation: int
    writer: str
    created_at: datetime
    final: bool
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def parts(self) -> tuple[Part, ...]:
        return tuple(part for file in self.files for part in file.parts)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def seal(fields: Mapping[str, Any]) -> bytes:
    """One line of JSON and its checksum."""
    line = json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()
    return line + b"\n" + digest(line).encode() + b"\n"


def unseal(content: bytes, what: str) -> dict[str, Any]:
    """The fields of a sealed object. DamagedError when it is not as it was written."""
    line, _, check = content.partition(b"\n")
    if check.strip() != digest(line).encode():
        raise DamagedError(f"{what} does not match its checksum")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise DamagedError(f"{what} is not JSON") from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise DamagedError(f"{what} is not of format {FORMAT}: a newer client wrote it, update this one")
    return fields


def write_manifest(manifest: Manifest) -> bytes:
    return seal(
        {
            "workload": manifest.workload,
            "token": manifest.token,
            "generation": manifest.generation,
            "writer": manifest.writer,
            "createdAt": manifest.created_at.isoformat(),
            "final": manifest.final,
            "files": [
                {
                    "name": file.name,
                    "bytes": file.bytes,
                    "parts": [
                        {"key": part.key, "bytes": part.bytes, "sha256": part.sha256} for part in file.parts
                    ],
                }
                for file in manifest.files
            ],
        }
    )


def read_manifest(content: bytes, what: str) -> Manifest:
    """The manifest of an object named `what`. DamagedError when it is none."""
    fields = unseal(content, what)
    try:
        return Manifest(
            workload=_text(fields["workload"]),
            token=_whole(fields["token"]),
            generation=_whole(fields["generation"]),
            writer=_text(fields["writer"]),
            created_at=_moment(fields["createdAt"]),
            final=fields["final"] is True,
            files=tuple(_file(file) for file in fields["files"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{what} is no manifest: {error!r}") from None


def checked_name(name: str) -> str:
    """A file's name in a generation. ValueError when it could lead out of a folder."""
    parts = name.split("/")
    if not name or len(name) > MAX_NAME or not name.isprintable() or "\\" in name:
        raise ValueError(
            f"{name[:100]!r} is no file name: 1 to {MAX_NAME} printable characters, no backslash"
        )
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name[:100]!r} is no file name: it must be relative, without '.' or '..'")
    return name


def _file(fields: Mapping[str, Any]) -> File:
    file = File(checked_name(_text(fields["name"])), tuple(_part(part) for part in fields["parts"]))
    if file.bytes != _whole(fields["bytes"]):
        raise ValueError(f"the parts of {file.name} have {file.bytes} bytes together")
    return file


def _part(fields: Mapping[str, Any]) -> Part:
    part = Part(_text(fields["key"]), _whole(fields["bytes"]), _text(fields["sha256"]))
    if not _DIGEST.fullmatch(part.sha256):
        raise ValueError(f"{part.sha256[:80]!r} is no checksum")
    return part


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{str(value)[:40]!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.tzinfo is None:
        raise ValueError("createdAt has no offset from UTC")
    return moment

"""Files that a command is given or writes: bytes, the documents in them, or a failure that says where."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from clients.cli.failures import usage
from domain.intake import IntakeRefused, read_claim
from domain.intake.own import looks_like_claim
from domain.intake.words import is_mapping, shown
from wire.intake import MAX_BYTES, UnreadableInput, parse_documents

STDIN = "-"
EVERYBODY_READS = 0o644
CLAIM = "Claim"


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file. `place` names it in messages."""

    place: str
    fields: dict[str, object]


def read_bytes(name: str) -> bytes:
    """The bytes of a file, or of standard input for `-`."""
    try:
        if name == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise usage(f"cannot read {spoken(name)}: {reason}", "check the name given with -f") from None
    if len(content) > MAX_BYTES:
        raise usage(f"{spoken(name)} is longer than {MAX_BYTES:,} bytes, which is the limit")
    return content


def replace_file(name: str, content: bytes) -> bool:
    """Put a file that everybody may read in the place of `name`; False where it says the same already.

    The old file stays until the new one is whole on the disk, and for good when anything fails.
    """
    try:
        place = Path(name).resolve()
        if place.is_file() and place.stat().st_size == len(content) and place.read_bytes() == content:
            return False
        handle, draft = mkstemp(prefix=f".{place.name}.", dir=place.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, EVERYBODY_READS)
                file.write(content)
                file.flush()
                os.fsync(handle)
            os.replace(draft, place)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        _settle(place.parent)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise usage(f"cannot write {spoken(name)}: {reason}", "what it held before is as it was") from None
    return True


def _settle(folder: Path) -> None:
    """The new name is on the disk, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def spoken(name: str) -> str:
    return "standard input" if name == STDIN else f"'{name}'"


def parsed(name: str, content: bytes) -> list[object]:
    try:
        return parse_documents(content)
    except UnreadableInput as error:
        raise usage(f"{spoken(name)}, {error}") from None


def read_documents(names: Sequence[str]) -> list[Document]:
    """Every document of every file; each is an object."""
    found = []
    for name in names:
        documents = parsed(name, read_bytes(name))
        if not documents:
            raise usage(f"{spoken(name)} holds no document")
        for index, document in enumerate(documents, start=1):
            place = f"{spoken(name)}, document {index}"
            if not is_mapping(document):
                raise usage(f"{place} is {shown(document)}; an object with apiVersion and kind is expected")
            found.append(Document(place, document))
    return found


def workload_of(name: str, content: bytes) -> str:
    """The one workload that a claim of ours names. A list from a scheduler may hold work of many."""
    documents = parsed(name, content)
    ours = [document for document in documents if is_mapping(document) and looks_like_claim(document)]
    if not ours or len(ours) < len(documents):
        raise usage(
            f"{spoken(name)} is a scheduler's list, which may hold work of many workloads",
            f"say whose claim it is with --workload NAME{_marked(documents)}",
        )
    kinds = sorted({str(document.get("kind", CLAIM)) for document in ours} - {CLAIM})
    if kinds:
        raise usage(
            f"{spoken(name)} holds a document of kind {shown(kinds[0])}; allowed is {CLAIM}",
            "contracts, workloads and the like are applied: sco apply -f FILE",
        )
    named = [document.get("workload") for document in ours]
    names = sorted({text for text in named if isinstance(text, str)})
    if len(names) != 1 or len(names) < len(set(map(str, named))):
        raise usage(
            f"{spoken(name)} names {', '.join(names) if names else 'no workload'}; exactly one is expected",
            "write workload: NAME into each claim of the file, or choose one with --workload NAME",
        )
    return names[0]


def _marked(documents: list[object]) -> str:
    """The workloads that entries of the list name themselves."""
    intake = read_claim(documents, workload=None)
    if isinstance(intake, IntakeRefused) or not intake.workloads:
        return ""
    return f"; its entries name {', '.join(intake.workloads)}"

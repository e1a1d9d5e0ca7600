"""The pages of the documentation, as tests read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))))
ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&", ">", "<"})


class Command(NamedTuple):
    """One command as a page shows it. In a sentence it may be a name, without what it needs to run."""

    page: str
    words: tuple[str, ...]
    complete: bool

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    return (ROOT / name).read_text()


def section(name: str, heading: str) -> str:
    """The text below one second-level heading of a page."""
    parts = re.split(r"^## (.+)$", read(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def rows(name: str, heading: str) -> dict[str, list[str]]:
    """The tables of a section: the first cell, without its backquotes, to the other cells."""
    found = ROW.findall(section(name, heading))
    assert len({key for key, _ in found}) == len(found), f"{name}, {heading}: a row is there twice"
    return {key: [cell.strip() for cell in rest.split("|")] for key, rest in found}


def fences(text: str, language: str) -> list[str]:
    return [body for kind, body in _FENCE.findall(text) if kind == language]


def without_fences(text: str) -> str:
    return _FENCE.sub("", text)


def commands(program: str) -> list[Command]:
    """Every use of one program in shell blocks and code spans, once per page. A bare name is no command."""
    return sorted(set(_commands(program)))


def _commands(program: str) -> Iterator[Command]:
    for page in PAGES:
        text = page.read_text()
        for block in fences(text, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from _commands_in(name_of(page), line, program, complete=True)
        for span in _SPAN.findall(without_fences(text)):
            if "…" not in span:
                yield from _commands_in(name_of(page), span, program, complete=False)


def _commands_in(page: str, line: str, program: str, *, complete: bool) -> Iterator[Command]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return
    part: list[str] = []
    for word in (*words, ";"):
        if word not in _SEPARATORS:
            part.append(word)
            continue
        arguments = _arguments(part, program)
        if arguments:
            yield Command(page, tuple(arguments), complete)
        part = []


def _arguments(part: list[str], program: str) -> list[str]:
    """What follows the program, where the part is a call of it; variables may be set before."""
    while part and re.fullmatch(r"[A-Z_]+=.*", part[0]):
        part = part[1:]
    return part[1:] if part and part[0] in (program, f".venv/bin/{program}") else []

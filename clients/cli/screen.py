"""What is printed: lines, tables and documents, on a terminal or into a file.

Texts may come from a server or a scheduler. They are shown printable and never read as markup, so that
no name can move the cursor or colour a screen.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients.cli.failures import Failure, usage
from domain.intake.words import clean

_FILE_WIDTH = 1000
_MAX_TEXT = 20_000
NUMBERS = ">"


class PipeClosed(Exception):
    """Whoever read the output has enough."""


@contextmanager
def output_checked() -> Iterator[None]:
    """Output that cannot be written ends a command like any other failure."""
    try:
        yield
    except OSError as error:
        # The interpreter must not find the same file again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise PipeClosed from None
        raise usage(f"the output cannot be written: {error.strerror or error}") from None


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Screen:
    """Results go to standard output; progress and errors go to standard error."""

    def __init__(self) -> None:
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def line(self, text: str = "", style: str | None = None) -> None:
        with self.out.capture() as drawn:
            self.out.print(printable(text, style), soft_wrap=True)
        self._write(drawn.get())

    def note(self, text: str) -> None:
        """Something beside the result."""
        self.err.print(printable(text), soft_wrap=True)

    def title(self, text: str) -> None:
        self.line(text, "bold")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns whose name starts with `>` hold numbers."""
        grid = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for name in columns:
            is_number = name.startswith(NUMBERS)
            grid.add_column(
                name.removeprefix(NUMBERS),
                justify="right" if is_number else "left",
                no_wrap=is_number,
                overflow="fold",
            )
        for row in rows:
            grid.add_row(*(printable(cell) for cell in row))
        self._print(grid)

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, one a line."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in pairs:
            grid.add_row(printable(name), printable(value))
        self._print(grid)

    def _print(self, grid: Table) -> None:
        """Without the spaces that fill the last column, which only make copied text worse."""
        with self.out.capture() as drawn:
            self.out.print(grid)
        self._write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))

    def _write(self, text: str) -> None:
        with output_checked():
            self.out.file.write(text)

    def document(self, document: object, form: Format) -> None:
        """A server's document as it came, for other programs."""
        if form is Format.JSON:
            text = json.dumps(document, indent=2, ensure_ascii=not _takes_unicode())
        else:
            text = yaml.safe_dump(document, sort_keys=False, allow_unicode=_takes_unicode()).rstrip("\n")
        self._write(text + "\n")

    def failure(self, failure: Failure) -> None:
        self.err.print(Text.assemble(("error: ", "bold red"), printable(failure.problem)), soft_wrap=True)
        for hint in failure.hints:
            self.err.print(printable(f"  {hint}"), soft_wrap=True)


def printable(text: str, style: str | None = None) -> Text:
    """Line breaks stay; anything else that is not printable is written as an escape."""
    shown = "\n".join(clean(line, _MAX_TEXT) for line in text[:_MAX_TEXT].split("\n"))
    return Text(shown, style or "")


def _takes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console

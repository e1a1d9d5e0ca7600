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
from typing import NamedTuple

import yaml
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from clients.cli.failures import Failure, usage
from domain.intake.words import clean

_FILE_WIDTH = 1000
_MAX_TEXT = 20_000
_PROSE_WIDTH = 20
_GAP = 2


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


class Column(NamedTuple):
    """One column: figures stand to the right, prose may break, and what is spare may be left out."""

    name: str
    is_figure: bool = False
    is_prose: bool = False
    is_spare: bool = False


def names(*columns: str) -> tuple[Column, ...]:
    return tuple(Column(name) for name in columns)


def figures(*columns: str) -> tuple[Column, ...]:
    return tuple(Column(name, is_figure=True) for name in columns)


def prose(*columns: str) -> tuple[Column, ...]:
    return tuple(Column(name, is_prose=True) for name in columns)


def spare(*columns: Column) -> tuple[Column, ...]:
    """Columns that say what another one says too: a terminal that is too narrow is spared them."""
    return tuple(column._replace(is_spare=True) for column in columns)


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
        """Something beside the result, in one piece even where an interrupt falls into it."""
        with self.err.capture() as drawn:
            self.err.print(printable(text), soft_wrap=True)
        self.err.file.write(drawn.get())
        self.err.file.flush()

    def title(self, text: str) -> None:
        self.line(text, "bold")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows under a heading. Names are never broken; a narrow terminal gets fewer columns instead."""
        cells = [[printable(cell) for cell in row] for row in rows]
        widths = [
            max([len(column.name), *(row[place].cell_len for row in cells)])
            for place, column in enumerate(columns)
        ]
        shown = _fitting(columns, widths, self.out.width)
        grid = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        needed = 0
        for place in shown:
            column = columns[place]
            least = min(widths[place], _PROSE_WIDTH) if column.is_prose else widths[place]
            side: JustifyMethod = "right" if column.is_figure else "left"
            grid.add_column(column.name, justify=side, no_wrap=not column.is_prose, min_width=least)
            needed += least + _GAP
        for row in cells:
            grid.add_row(*(row[place] for place in shown))
        self._print(grid, max(self.out.width, needed))

    def facts(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Names and values, one a line."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in pairs:
            grid.add_row(printable(name), printable(value))
        self._print(grid, self.out.width)

    def _print(self, grid: Table, width: int) -> None:
        """Without the spaces that fill the last column, which only make copied text worse."""
        before, self.out.width = self.out.width, width
        with self.out.capture() as drawn:
            self.out.print(grid)
        self.out.width = before
        self._write("".join(f"{line.rstrip()}\n" for line in drawn.get().rstrip("\n").split("\n")))

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


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that fit; of the spare ones, the last is left out first."""
    shown = list(range(len(columns)))
    for place in reversed(range(len(columns))):
        if sum(widths[one] + _GAP for one in shown) - _GAP <= width:
            break
        if columns[place].is_spare:
            shown.remove(place)
    return shown


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

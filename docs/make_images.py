"""Write the terminal pictures of the documentation from what `sco` prints against a running laboratory.

    make up
    . .lab/sco.env
    .venv/bin/python docs/make_images.py

It submits the example claim of `orders-daily`, waits until it is placed and writes docs/images/*.svg.
In a fresh laboratory that is claim 1. Another laboratory is named with `--server URL`.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WORKLOAD = "orders-daily"
CONTRACT = "examples/contracts/orders-daily.yaml"
PODS = "examples/demand/orders-daily-pods.json"
COMMAND_SECONDS = 300
# Rich's own format names a font on a foreign host; a picture in a repository should load nothing.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 16px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


class Picture(NamedTuple):
    """One file, the command whose output it shows, and the width that this needs."""

    name: str
    arguments: tuple[str, ...]
    columns: int


PICTURES = (
    Picture("describe-workload.svg", ("describe", "workload", WORKLOAD), 112),
    Picture("explain.svg", ("explain", WORKLOAD), 162),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every picture was written, 1 when a command failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--server", help="where the API is; otherwise as sco finds it")
    given = parser.parse_args(arguments)
    server = [] if given.server is None else ["--server", given.server]
    try:
        _sco(server, ("apply", "-f", CONTRACT))
        _sco(server, ("claim", "-f", PODS, "--workload", WORKLOAD, "--wait"))
        IMAGES.mkdir(exist_ok=True)
        for picture in PICTURES:
            output = _sco(server, picture.arguments, picture.columns)
            (IMAGES / picture.name).write_text(svg(picture, output))
            print(f"docs/images/{picture.name}")
    except subprocess.CalledProcessError as error:
        print(f"make_images: sco {' '.join(error.cmd[3:])} failed:\n{error.stderr}", file=sys.stderr)
        return 1
    return 0


def _sco(server: Sequence[str], arguments: Sequence[str], columns: int = 100) -> str:
    """What one command prints on a terminal of so many columns."""
    ended = subprocess.run(
        [sys.executable, "-m", "clients.cli.main", *server, *arguments],
        cwd=ROOT,
        env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    return ended.stdout


def svg(picture: Picture, output: str) -> str:
    """A terminal as a picture: the command as typed, and its output."""
    command = f"sco {' '.join(picture.arguments)}"
    console = Console(record=True, width=picture.columns, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", "bold green"))
    console.print(Text.from_ansi(output.rstrip()))
    drawn = console.export_svg(
        title=command,
        theme=MONOKAI,
        code_format=FORMAT.replace("TITLE", escape(command)),
        unique_id=f"sco-{picture.arguments[0]}",
    )
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"


if __name__ == "__main__":
    sys.exit(main())

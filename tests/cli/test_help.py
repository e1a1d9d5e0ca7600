"""Help, the reference page and what the program does agree with each other."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from clients.cli.failures import Exit
from clients.cli.main import app
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, problem

PROJECT = Path(__file__).parents[2]
PAGES = ("docs/reference/cli.md", "examples/README.md")
PAGE = (PROJECT / PAGES[0]).read_text()
EXAMPLES = PROJECT / "examples"
WEB_CONTRACT, WEB_CLAIM = EXAMPLES / "contracts" / "web.yaml", EXAMPLES / "demand" / "web-claim.yaml"


def commands(group: Any = None, name: str = "sco") -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""
    group = group or typer.main.get_command(app)
    for word, command in group.commands.items():
        full = f"{name} {word}"
        if hasattr(command, "commands"):
            yield from commands(command, full)
        else:
            yield full, command


COMMANDS = dict(commands())


def sections() -> dict[str, str]:
    """The page's text by the command that its heading names."""
    parts = re.split(r"^### `(sco [a-z -]+)`$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def options(command: Any) -> set[str]:
    return {name for one in command.params for name in one.opts if name.startswith("-")} - {"-h", "--help"}


def examples(text: str) -> list[str]:
    """Lines of code that run `sco`, from where it is called."""
    lines = [line.strip().rpartition("| ")[2] for line in text.splitlines()]
    return [line for line in lines if re.match(r"sco [a-z-]", line) and "`" not in line]


def all_examples() -> list[str]:
    texts = [block for page in PAGES for block in _code((PROJECT / page).read_text())]
    texts += [command.help for command in COMMANDS.values()]
    return sorted({example for text in texts for example in examples(text)})


def _code(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def test_the_page_lists_every_command_and_no_other() -> None:
    assert set(sections()) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_page_names_every_option_and_no_other(name: str) -> None:
    prose = re.sub(r"^```.*?^```", "", sections()[name], flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`(--?[a-z][a-z-]*)", prose))
    assert named == options(COMMANDS[name])


def test_the_page_explains_every_exit_code() -> None:
    codes = re.findall(r"^\| (\d) \|", PAGE, flags=re.MULTILINE)
    assert [int(code) for code in codes] == [code.value for code in Exit]


@pytest.mark.parametrize(
    "name",
    [
        "sco",
        *sorted(COMMANDS),
        "sco get",
        "sco describe",
        "sco activate",
        "sco change",
        "sco drain",
        "sco models",
    ],
)
def test_help_is_plain_and_has_examples(sco: Sco, name: str) -> None:
    ran = sco(*name.split()[1:], "--help")
    assert ran.code == 0
    assert ran.err == ""
    assert "..." not in ran.out.replace("[ARGS]...", "").replace("}...", "")
    assert "\x1b" not in ran.out
    assert name not in COMMANDS or examples(ran.out)


@pytest.mark.parametrize("example", all_examples())
def test_every_example_is_right_usage(
    sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, example: str
) -> None:
    given = WEB_CONTRACT.read_bytes() if " apply " in example else WEB_CLAIM.read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "pods.json").write_text('{"items": []}')
    api.always(problem(404, "nothing is here"))
    ran = sco(*shlex.split(example)[1:])
    # Of an audit, 1 says that something was found.
    assert ran.code == (2 if example.startswith("sco audit") else 1), ran.err
    assert "nothing is here" in ran.err

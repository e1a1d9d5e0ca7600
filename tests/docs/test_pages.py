"""Every link of the documentation leads somewhere, and every command in it exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.main import get_command

from clients.cli import main as sco
from lab import main as lab
from tests.docs.pages import PAGES, ROOT, Command, commands, name_of, read, without_fences

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SCO, SCO_LAB, MAKE = commands("sco"), commands("sco-lab"), commands("make")
# What a reader puts in place of these words.
PLACEHOLDERS = {
    "NAME": "orders-daily",
    "URL": "http://127.0.0.1:8080",
    "REASON": "cap",
    "FILE": "pods.json",
    "COMMAND": "status",
}


def anchors(page: Path) -> set[str]:
    """The anchors that a repository's host gives to the headings of a page."""
    found = HEADING.findall(without_fences(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in found}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(without_fences(page.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), f"{link}: there is no such file"
        assert ROOT in target.parents, f"{link}: it leads out of the repository"
        if anchor:
            assert anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_one_title(page: Path) -> None:
    assert len(re.findall(r"^# ", without_fences(page.read_text()), re.MULTILINE)) == 1


def test_every_page_below_docs_is_reached_from_the_index() -> None:
    reached, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(page.read_text())]
        waiting += [(page.parent / link).resolve() for link in links if link and "://" not in link]
    assert {name_of(page) for page in PAGES if name_of(page).startswith("docs/")} <= {
        name_of(page) for page in reached if ROOT in page.parents
    }


def parse(command: Any, words: list[str], context: Any = None) -> None:
    """Parse words as the program would, without running anything; whatever is wrong is raised."""
    if not hasattr(command, "commands"):
        command.make_context("command", words, parent=context).close()
        return
    inner = command.context_class(command, info_name="program", parent=context)
    _, rest, _ = command.make_parser(inner).parse_args(args=words)
    if not rest:
        assert words, "a group needs a command"
        return
    found = command.get_command(inner, rest[0])
    assert found is not None, f"there is no command {rest[0]}"
    parse(found, rest[1:], inner)


def check(program: Any, command: Command) -> None:
    """The command is understood; one that is only named may lack what it needs to run."""
    words = [PLACEHOLDERS.get(word, word) for word in command.words]
    if words[-1] in ("--help", "-h"):
        words.pop()
    try:
        parse(program, words)
    except Exception as error:
        if command.complete or type(error).__name__ != "MissingParameter":
            raise


@pytest.mark.parametrize("command", SCO, ids=str)
def test_every_sco_command_is_one_that_sco_understands(command: Command) -> None:
    check(get_command(sco.app), command)


@pytest.mark.parametrize("command", SCO_LAB, ids=str)
def test_every_lab_command_is_one_that_the_lab_understands(command: Command) -> None:
    check(get_command(lab.app), command)


def test_wrong_commands_would_be_found() -> None:
    for words in (
        ["get", "nothing"],
        ["describe", "workload"],
        ["claim", "-f", "x", "--no-such"],
        ["nothing"],
    ):
        with pytest.raises(Exception, match=r".+"):
            parse(get_command(sco.app), words)


def test_the_documentation_uses_its_programs() -> None:
    assert len(SCO) > 20
    assert {command.words[0] for command in SCO} >= {"apply", "claim", "explain", "get", "describe"}
    assert {command.words[0] for command in MAKE} >= {"demo", "test", "setup", "up", "down"}


def test_every_make_target_exists() -> None:
    targets = set(TARGET.findall(read("Makefile")))
    used = {word for command in MAKE for word in command.words if re.fullmatch(r"[a-z-]+", word)}
    assert used <= targets


def test_the_readme_is_short_and_shows_its_two_commands() -> None:
    readme = read("README.md")
    assert "make demo" in readme
    assert "make test" in readme
    assert len(readme.splitlines()) < 60


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "images").glob("*.svg")), ids=lambda path: path.name
)
def test_a_picture_is_well_formed_titled_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text()
    root = ElementTree.fromstring(text)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles
    assert titles[0]
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_the_run_of_continuous_integration_is_sound_and_executable() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert text.index("step test\n") < text.index("step test-real\n")


def test_pre_commit_downloads_nothing() -> None:
    text = read(".pre-commit-config.yaml")
    assert re.findall(r"- repo: (.+)", text) == ["local"]
    assert set(re.findall(r"language: (.+)", text)) == {"system"}
    assert all(entry.startswith(".venv/bin/") for entry in re.findall(r"entry: (.+)", text))

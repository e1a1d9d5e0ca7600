"""A test that fails beside others may pass by itself; what fails for a reason fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_chance import MOST_FILES, refusal

ROOT = Path(__file__).parents[1]
SECONDS = 120
ONE = "tests/agent/test_drain.py::test_it"


@pytest.mark.parametrize(
    ("exit_code", "failed", "said"),
    [
        (1, [ONE], None),
        (1, [f"{ONE}[{number}]" for number in range(20)], None),
        (1, [f"tests/agent/test_{number}.py::test_it" for number in range(MOST_FILES)], None),
        (
            1,
            [f"tests/agent/test_{number}.py::test_it" for number in range(MOST_FILES + 1)],
            "tests of 4 files failed, and of 3 may",
        ),
        (1, [ONE, "tests/domain/test_caps.py::test_it"], "test_caps.py::test_it needs no server"),
        (1, ["tests/docs/test_pages.py::test_it"], "needs no server"),
        (1, [], "exit code 1"),
        (2, [ONE], "exit code 2"),
        (3, [ONE], "exit code 3"),
        (5, [], "exit code 5"),
    ],
)
def test_a_second_chance_is_for_few_and_not_for_rules(
    exit_code: int, failed: list[str], said: str | None
) -> None:
    found = refusal(exit_code, failed)
    assert (found is None) if said is None else (found is not None and said in found)


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("def test_it(): pass", 0, 0),
        # A file that is there the second time stands for a moment that is over.
        (
            "import pathlib\ndef test_it(): f = pathlib.Path('seen'); s = f.exists(); f.touch(); assert s",
            1,
            0,
        ),
        ("def test_it(): assert 1 == 2", 1, 1),
        ("import nowhere", 2, 2),
        ("", 5, 5),
    ],
)
def test_what_failed_runs_once_more_by_itself(tmp_path: Path, body: str, first: int, second: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text(body)
    (tmp_path / "test_other.py").write_text("import test_one\ndef test_it(): pass" if first in {0, 1} else "")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    began = run("pytest", "-o", "cache_dir=noted", "--cache-clear")
    assert began.returncode == first, began.stdout
    again = run("tests.second_chance", "noted", str(first))
    assert again.returncode == second, again.stdout
    assert ("1 that failed beside others" in again.stdout) == (first == 1)
    if first == 1:
        assert "1 passed" in again.stdout or "1 failed" in again.stdout

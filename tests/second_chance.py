"""Runs the tests that failed once more, by themselves: on servers of their own, with nothing beside them.

    python -m tests.second_chance CACHE_DIR EXIT_CODE

EXIT_CODE is how the first run ended, and CACHE_DIR where it noted which tests failed. Tests of rules and of
documents get no second chance, nor do those of more than a few files: the tests of one file share servers,
and one that breaks takes the rest along. Ends as the second run does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

MOST_FILES = 3
NEVER = ("tests/domain/", "tests/docs/")


def refusal(exit_code: int, failed: Collection[str]) -> str | None:
    """Why there is no second chance after a run that did not pass; None where there is one."""
    if exit_code != pytest.ExitCode.TESTS_FAILED or not failed:
        return f"the run ended with exit code {exit_code}"
    certain = sorted(one for one in failed if one.startswith(NEVER))
    if certain:
        return f"{certain[0]} needs no server: it fails for a reason"
    files = {one.partition("::")[0] for one in failed}
    if len(files) > MOST_FILES:
        return f"tests of {len(files)} files failed, and of {MOST_FILES} may"
    return None


def main(arguments: Sequence[str]) -> int:
    cache, exit_code = arguments
    if exit_code == "0":
        return 0
    noted = Path(cache) / "v" / "cache" / "lastfailed"
    failed = list(json.loads(noted.read_text())) if noted.exists() else []
    why_not = refusal(int(exit_code), failed)
    if why_not is not None:
        print(f"second chance: none, {why_not}", flush=True)
        return int(exit_code)
    print(f"second chance: {len(failed)} that failed beside others, by themselves", flush=True)
    return int(pytest.main(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

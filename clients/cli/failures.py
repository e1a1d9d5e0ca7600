"""How a command ends: its exit code, and the failure that carries one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """What the exit code of `sco` says."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    WAITED_TOO_LONG = 4
    SHORTFALL = 5
    REPLAY_DIFFERS = 6
    AUDIT_FAILED = 7
    # Of `sco audit` alone, as of other programs that look for something; a refusal is wrong usage there.
    FINDINGS = 1


class Failure(Exception):
    """Ends a command. `problem` says what was wrong with which value, `hints` what to do about it."""

    def __init__(self, code: Exit, problem: str, hints: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.hints = tuple(hints)


class Missing(Failure):
    """The server has no such thing (404)."""


def usage(problem: str, *hints: str) -> Failure:
    """What was asked for is wrong: an option, an argument or a file."""
    return Failure(Exit.USAGE, problem, hints)


def unreachable(problem: str, *hints: str) -> Failure:
    """No answer, or none that can be used."""
    return Failure(Exit.UNREACHABLE, problem, hints)

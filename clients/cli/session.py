"""What one run of `sco` works with: the server, the screen and the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import typer
from pydantic import TypeAdapter, ValidationError

from clients.cli.api import Api, Clock
from clients.cli.failures import usage
from clients.cli.screen import Screen
from domain.claim import WorkloadId
from domain.intake.words import shown
from domain.pool import Name, PoolId
from domain.serving.warm_keep import ProfileId
from wire.node import Hall, InstanceId

_NAMES: dict[str, TypeAdapter[str]] = {
    "workload": TypeAdapter(WorkloadId),
    "pool": TypeAdapter(PoolId),
    "partition": TypeAdapter(Name),
    "contract": TypeAdapter(Name),
    "warm profile": TypeAdapter(ProfileId),
    "hall": TypeAdapter(Hall),
    "node": TypeAdapter(InstanceId),
}
_LETTERS = "a-z, 0-9 and -"
_RULES = {
    "workload": _LETTERS,
    "pool": _LETTERS,
    "partition": f"{_LETTERS} and .",
    "contract": f"{_LETTERS} and .",
    "warm profile": f"{_LETTERS} and .",
    "hall": _LETTERS,
    "node": "A-Z, a-z, 0-9, _ and -",
}
_FIRST = {"node": "A-Z, a-z or 0-9"}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run is started with; tests give their own."""

    clock: Clock
    new_key: Callable[[], str]
    screen: Screen


@dataclass(frozen=True, slots=True)
class Session:
    api: Api
    clock: Clock
    screen: Screen


def session_of(context: typer.Context) -> Session:
    session = context.obj
    assert isinstance(session, Session)
    return session


def checked_name(kind: str, name: str) -> str:
    """A name that the server can know, or a usage failure with the rule for names."""
    try:
        return _NAMES[kind].validate_python(name)
    except ValidationError:
        raise usage(
            f"{shown(name)} is no {kind} name;"
            f" allowed are up to 63 of {_RULES[kind]}, starting with {_FIRST.get(kind, 'a-z or 0-9')}"
        ) from None

"""What a process of ours says before it serves: its help, or a sentence for each setting that is wrong.

It takes no arguments: its settings come from the environment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

from activities.node_settings import NodeFileRefused
from activities.policy_file import PolicyRefused
from activities.secrets.settings import SecretsFileRefused
from domain.intake.words import clean
from store.roles import WrongRole

# What is read or tried only when the process starts to work, by the setting that names it.
REFUSED_BY: Mapping[type[Exception], str] = {
    WrongRole: "SCO_DATABASE_URL",
    PolicyRefused: "SCO_POLICY_FILE",
    SecretsFileRefused: "SCO_SECRETS_FILE",
    NodeFileRefused: "SCO_NODE_FILE",
}
NEEDED = {
    "database_url": "give the postgresql:// address of the database",
    "oidc_issuer": "give the address of the OpenID issuer whose tokens say who asks; nobody else is let in",
    "oidc_audience": "give the audience that tokens for this service are made out for, for example sco-api",
}
Settings = TypeVar("Settings", bound=BaseSettings)


def answer_help(program: str, purpose: str, settings: type[BaseSettings]) -> None:
    """Print what the process is for and which variables it reads, and end; or refuse what else was given.

    Returns where nothing was given. Ends with 0 after help and with 2 after a refusal.
    """
    prefix = settings.model_config.get("env_prefix", "")
    fields = settings.model_fields.items()
    needed = [f"{prefix}{name}".upper() for name, field in fields if field.is_required()]
    others = [f"{prefix}{name}".upper() for name, field in fields if not field.is_required()]
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"{purpose} It takes no arguments: settings are environment variables.",
        epilog=f"Needed: {', '.join(needed)}. Known besides: {', '.join(others)}."
        " docs/reference/settings.md says what each does.",
    )
    parser.parse_args()


def settings_of(program: str, kind: type[Settings]) -> Settings:
    """The settings of a process from its environment; where they are wrong it ends with 2."""
    try:
        return kind()
    except ValidationError as error:
        _end(program, told(error))


@contextmanager
def refusals_told(program: str, others: Mapping[type[Exception], str] | None = None) -> Iterator[None]:
    """Ends the process with 2 where what a setting names is refused; `others` are refusals of its own."""
    refused_by = {**REFUSED_BY, **(others or {})}
    try:
        yield
    except tuple(refused_by) as error:
        setting = next(name for kind, name in refused_by.items() if isinstance(error, kind))
        _end(program, [f"{setting}: {error}"])


def told(error: ValidationError) -> list[str]:
    """One line per wrong setting, by the name of its variable; no value is repeated."""
    lines = []
    for one in error.errors(include_url=False, include_input=False):
        said = clean(one["msg"].removeprefix("Value error, "))
        field = "_".join(str(part) for part in one["loc"])
        if one["type"] == "missing":
            said = f"is not set: {NEEDED[field]}"
        lines.append(f"SCO_{field.upper()}: {said}" if field else said)
    return lines


def _end(program: str, lines: Iterable[str]) -> NoReturn:
    for line in lines:
        print(f"{program}: {line}", file=sys.stderr)
    sys.exit(2)

"""Who asks, and what a request may need of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Scope(StrEnum):
    """What a token was given out for."""

    READ = "factory.compute.read"
    ADMIN = "factory.compute.admin"


class Role(StrEnum):
    """What its subject is in its tenant."""

    OBSERVER = "Observer"
    OPERATOR = "Operator"
    PLATFORM_ADMIN = "PlatformAdmin"


class Need(NamedTuple):
    """One of the scopes and one of the roles, in the order in which they are told."""

    scopes: tuple[Scope, ...]
    roles: tuple[Role, ...]


READ = Need((Scope.READ, Scope.ADMIN), (Role.OBSERVER, Role.OPERATOR, Role.PLATFORM_ADMIN))
PLACE = Need((Scope.READ, Scope.ADMIN), (Role.OPERATOR, Role.PLATFORM_ADMIN))
OPERATE = Need((Scope.ADMIN,), (Role.OPERATOR, Role.PLATFORM_ADMIN))
ADMINISTER = Need((Scope.ADMIN,), (Role.PLATFORM_ADMIN,))


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified subject of one tenant. Scopes and roles that this service does not know are left out."""

    subject: str
    tenant_id: str
    scopes: frozenset[Scope]
    roles: frozenset[Role]
    expires_at: datetime

    def allows(self, need: Need) -> bool:
        return not self.scopes.isdisjoint(need.scopes) and not self.roles.isdisjoint(need.roles)


def lacking(principal: Principal, need: Need) -> str:
    """What is needed and what the principal has, in words."""
    return (
        f"it needs {_any_of('scope', need.scopes)} and {_any_of('role', need.roles)};"
        f" the caller has {_all_of('scope', principal.scopes)} and {_all_of('role', principal.roles)}"
    )


def _any_of(noun: str, words: tuple[str, ...]) -> str:
    return f"the {noun} {' or '.join(words)}"


def _all_of(noun: str, words: frozenset[Scope] | frozenset[Role]) -> str:
    return f"the {noun}s {', '.join(sorted(words))}" if words else f"no {noun}"

"""What every table is made of: words, counts, moments, shares and money, all named alike."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Integer,
    MetaData,
    Numeric,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB


class Standing(StrEnum):
    """Whether a pool may take new units, as its exclusion has decided."""

    ELIGIBLE = "eligible"
    EXCLUDED = "excluded"
    PROBATION = "probation"


class Phase(StrEnum):
    """Where the placement of a workload is."""

    REQUESTED = "requested"
    PLANNED = "planned"
    PLACED = "placed"
    SHORTFALL = "shortfall"


class AuditStatus(StrEnum):
    """How far an audit came, and what it says."""

    RUNNING = "running"
    CLEAN = "clean"
    FINDINGS = "findings"
    FAILED = "failed"


metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(referred_table_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


def tenant() -> Column[str]:
    return Column("tenant_id", Text, nullable=False)


def word(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def count(name: str, default: int | None = None) -> Column[int]:
    server_default = None if default is None else text(str(default))
    return Column(name, Integer, nullable=False, server_default=server_default)


def moment(name: str, *, nullable: bool = False, now: bool = False) -> Column[object]:
    return Column(
        name, DateTime(timezone=True), nullable=nullable, server_default=func.now() if now else None
    )


def document(name: str) -> Column[object]:
    return Column(name, JSONB, nullable=False)


def share(name: str) -> Column[object]:
    return Column(name, Numeric(7, 6), nullable=False)


def money(name: str) -> Column[object]:
    return Column(name, Numeric(18, 6), nullable=False)


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")

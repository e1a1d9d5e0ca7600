"""The tally of one reading: what was counted for whom, what was left out, what nobody could read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from domain.claim import (
    MAX_GPUS,
    MAX_RAM_MIB,
    MAX_UNITS,
    MAX_VCPU_MILLI,
    Demand,
    LeftOut,
    LeftOutReason,
    Requirements,
    Unreadable,
    WorkloadId,
)
from domain.intake.shaping import Shaping, Size, shape_units
from domain.intake.words import Skip, Unclear, shown, some
from domain.model import Frozen

Source = Literal["kubernetes", "slurm", "sco"]

_MAX_NOTES = 100
_NAMED = 3
_MILLI = 1000
_MIB_PER_GIB = 1024
_WORKLOAD_ID: TypeAdapter[str] = TypeAdapter(WorkloadId)
_MOST = Size(MAX_VCPU_MILLI, MAX_RAM_MIB, MAX_GPUS)
_ASKED = ("thousandths of a vCPU", "MiB of memory", "GPUs")
WORKLOAD_RULE = "allowed are 1 to 63 of a-z, 0-9 and -, not starting with -"


class Intake(Frozen):
    """What a list says: the demand of each workload, and everything that is not part of it, named.

    `workloads` is sorted by name; a workload without pending entries is absent. `notes` say in words
    what was counted with a reservation. Nothing that was in the input is missing from all of these.
    """

    source: Source
    workloads: dict[str, Demand]
    left_out: tuple[LeftOut, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    notes: tuple[str, ...] = ()


class IntakeRefused(Frozen):
    """The input as a whole cannot be read: what is wrong, which value, what is allowed, what to do."""

    problem: str


@dataclass(frozen=True, slots=True)
class Ask:
    """What one readable pending entry asks for: units of each size, and where they may run."""

    units: tuple[tuple[Size, int], ...]
    requirements: Requirements


@dataclass(slots=True)
class _Named:
    """The first few names of many, for a message."""

    names: list[str] = field(default_factory=list)
    total: int = 0

    def add(self, name: str) -> None:
        self.total += 1
        if self.total <= _NAMED:
            self.names.append(name)

    def absorb(self, other: _Named) -> None:
        self.names = (self.names + other.names)[:_NAMED]
        self.total += other.total

    def __str__(self) -> str:
        return some(self.names, self.total)


@dataclass(slots=True)
class _Group:
    units: Counter[Size] = field(default_factory=Counter)
    entries: _Named = field(default_factory=_Named)


def check_workload(name: str, where: str) -> str:
    """The name, or `Unclear` with the rule for names."""
    try:
        return _WORKLOAD_ID.validate_python(name)
    except ValidationError:
        raise Unclear(f"{where} {shown(name)} is not a workload name; {WORKLOAD_RULE}") from None


def check_size(size: Size) -> Size:
    """The size, or `Unclear` when no claim can hold it."""
    for what, value, most in zip(_ASKED, size, _MOST, strict=True):
        if value > most:
            raise Unclear(f"one unit asks for {shown(value)} {what}; allowed are at most {most:,}")
    return size


class Tally:
    """Collects entries one by one. `workload` is the only one wanted, or None for all that are marked."""

    def __init__(self, workload: str | None) -> None:
        self._wanted = workload
        self._groups: dict[str, dict[Requirements, _Group]] = {}
        self._left_out: list[LeftOut] = []
        self._unreadable: list[Unreadable] = []
        self._notes: dict[str, _Named] = {}
        self._further_notes = 0
        self._seen: set[Hashable] = set()

    def count(self, name: str, workload: str, ask: Ask) -> None:
        """Add one entry; raises `Unclear` when it alone is more than any claim may hold."""
        total = sum(units for _, units in ask.units)
        if total > MAX_UNITS:
            raise Unclear(f"it asks for {total:,} units; allowed are at most {MAX_UNITS:,}")
        group = self._groups.setdefault(workload, {}).setdefault(ask.requirements, _Group())
        group.entries.add(name)
        for size, units in ask.units:
            group.units[size] += units

    def skip(self, name: str, why: Skip) -> None:
        self._left_out.append(LeftOut(name=name, reason=why.reason, detail=why.detail))

    def unclear(self, name: str, problem: Unclear | str) -> None:
        self._unreadable.append(Unreadable(name=name, problem=str(problem)))

    def note(self, text: str, name: str) -> None:
        if text in self._notes or len(self._notes) < _MAX_NOTES:
            self._notes.setdefault(text, _Named()).add(name)
        else:
            self._further_notes += 1

    def is_repeat(self, key: Hashable) -> bool:
        """Whether an entry with this identity was already seen."""
        repeat = key in self._seen
        self._seen.add(key)
        return repeat

    def owner(self, mark: str | None, how_to_mark: str) -> str:
        """The workload of an entry that carries `mark`, or `Skip` when it is not one that is wanted."""
        owner = mark if mark is not None else self._wanted
        if owner is None:
            raise Skip(
                LeftOutReason.NO_WORKLOAD,
                f"it names no workload: {how_to_mark}, or name the workload with the list",
            )
        if self._wanted is not None and owner != self._wanted:
            raise Skip(LeftOutReason.OTHER_WORKLOAD, f"it belongs to workload {owner}")
        return owner

    def result(self, source: Source) -> Intake:
        workloads = {}
        for name in sorted(self._groups):
            demand = self._demand(name, self._one_gpu_type(name, self._groups[name]))
            if demand is not None:
                workloads[name] = demand
        return Intake(
            source=source,
            workloads=workloads,
            left_out=tuple(self._left_out),
            unreadable=tuple(self._unreadable),
            notes=self._all_notes(),
        )

    def _all_notes(self) -> tuple[str, ...]:
        notes = [f"{text} ({named})" for text, named in self._notes.items()]
        if self._further_notes:
            notes.append(f"{self._further_notes:,} further remarks of other kinds are not listed")
        return tuple(notes)

    def _demand(self, workload: str, groups: dict[Requirements, _Group]) -> Demand | None:
        if len(groups) > 1:
            self.unclear(f"workload {workload}", _disagreement(groups))
            return None
        ((requirements, group),) = groups.items()
        total = group.units.total()
        if total > MAX_UNITS:
            self.unclear(
                f"workload {workload}",
                f"it asks for {total:,} units; allowed are at most {MAX_UNITS:,}: divide it into workloads",
            )
            return None
        if len({size.gpus > 0 for size in group.units}) > 1:
            self.note(
                "has units with and without GPUs, all placed on GPU instances: two workloads part them",
                f"workload {workload}",
            )
        shaping = shape_units(group.units)
        self._note_rounding(workload, shaping)
        return Demand(shapes=shaping.shapes, requirements=requirements)

    def _note_rounding(self, workload: str, shaping: Shaping) -> None:
        if shaping.distinct > len(shaping.shapes):
            self.note(
                f"{shaping.distinct:,} different sizes were rounded up to {len(shaping.shapes)} shapes, which"
                f" adds {shaping.extra_vcpu_milli / _MILLI:,.1f} vCPU,"
                f" {shaping.extra_ram_mib / _MIB_PER_GIB:,.1f} GiB and {shaping.extra_gpus} GPUs in all",
                f"workload {workload}",
            )

    def _one_gpu_type(self, workload: str, groups: dict[Requirements, _Group]) -> dict[Requirements, _Group]:
        """Where one GPU type is asked for, units that leave it open take it too: stricter, never looser."""
        types = {requirements.gpu_type for requirements in groups} - {None}
        if len(groups) == 1 or len(types) != 1:
            return groups
        (gpu_type,) = types
        merged: dict[Requirements, _Group] = {}
        for requirements, group in groups.items():
            if requirements.gpu_type is None:
                self.note(
                    f"placed on GPU type {gpu_type} as well, which others of {workload} ask for",
                    str(group.entries),
                )
            target = merged.setdefault(requirements.model_copy(update={"gpu_type": gpu_type}), _Group())
            target.units.update(group.units)
            target.entries.absorb(group.entries)
        return merged


def _disagreement(groups: dict[Requirements, _Group]) -> str:
    fields = [name for name in Requirements.model_fields if len({getattr(r, name) for r in groups}) > 1]
    parts = [
        "; ".join(f"{name} {_plain(getattr(requirements, name))}" for name in fields) + f" ({group.entries})"
        for requirements, group in groups.items()
    ]
    return (
        f"its entries ask for different places: {some(parts, limit=5)}."
        " All units of a workload share their requirements: divide it into workloads"
    )


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(str(item) for item in value)
    return "open" if value is None else str(value)

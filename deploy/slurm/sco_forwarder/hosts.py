"""Names of nodes as Slurm writes many of them at once: `n[001-003,7],login`."""

from __future__ import annotations

import re

MAX_HOSTS = 100_000
_PART = re.compile(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*")
_RANGE = re.compile(r"\[([^\]]*)\]")


def hosts_of(text: str) -> list[str]:
    """Every name in a list. ValueError when it is none, or names more hosts than any cluster has."""
    if text.count("[") != text.count("]"):
        raise ValueError(f"{text[:40]!r} is no list of hosts")
    found: list[str] = []
    for part in _PART.findall(text):
        found += _expand(part)
        if len(found) > MAX_HOSTS:
            raise ValueError(f"more than {MAX_HOSTS} hosts in one list")
    return found


def _expand(part: str) -> list[str]:
    ranged = _RANGE.search(part)
    if ranged is None:
        return [part]
    before, after = part[: ranged.start()], part[ranged.end() :]
    numbers = [number for piece in ranged[1].split(",") for number in _numbers(piece)]
    rests = _expand_rest(after)
    if len(numbers) * len(rests) > MAX_HOSTS:
        raise ValueError(f"more than {MAX_HOSTS} hosts in one list")
    return [f"{before}{number}{rest}" for number in numbers for rest in rests]


def _expand_rest(after: str) -> list[str]:
    return _expand(after) if after else [""]


def _numbers(piece: str) -> list[str]:
    first, _, last = piece.partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        raise ValueError(f"{piece[:40]!r} is no range of numbers")
    count = int(last or first) - int(first) + 1
    if count > MAX_HOSTS:
        raise ValueError(f"more than {MAX_HOSTS} hosts in one list")
    return [str(number).zfill(len(first)) for number in range(int(first), int(first) + count)]

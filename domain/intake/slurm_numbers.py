"""Numbers as Slurm prints them: plain, as objects, as words, and packed into texts.

Data parsers v0.0.37 and v0.0.38 print plain numbers and null, later ones objects with `set`,
`infinite` and `number`. Old ones leak the values that mean "not set" inside Slurm.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from decimal import Decimal
from typing import NamedTuple

from domain.intake.words import Unclear, clean, is_mapping, shown, text_of

_UNSET_WORDS = ("", "NONE", "UNLIMITED", "INFINITE", "NOT_SET", "N/A", "(NULL)")
_UNSET_SHORT = (2**16 - 2, 2**16 - 1)
_UNSET_LONG = (2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1)
_MAX_DIGITS = 20
_MAX_TRES = 4096
_NUMBER = re.compile(r"(\d{1,20})(?:-\d{1,20})?", re.ASCII)
_MEMORY = re.compile(r"(\d{1,15})(?:\.(\d{1,6}))?([KMGTP]?)B?", re.ASCII | re.IGNORECASE)
_KIB_PER_UNIT = {"K": 1, "": 1 << 10, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30, "P": 1 << 40}
_SPAN = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_LIMIT = re.compile(r"\d{1,10}", re.ASCII)
_TRES = re.compile(r"([A-Za-z_]\w*)(?:[:/]([^:=/(]+))??(?:[:=](\d{1,15}(?:\.\d{1,6})?[KMGTP]?))?", re.ASCII)


def number(value: object, where: str) -> int | None:
    """A small count. None when it is not set, infinite or unlimited; `2-4` is 2."""
    return _number(value, where, (*_UNSET_SHORT, *_UNSET_LONG))


def _number(value: object, where: str, unset: Collection[int]) -> int | None:
    if is_mapping(value):
        if value.get("infinite") is True or value.get("set") is False:
            return None
        value = value.get("number")
    if isinstance(value, str):
        value = _from_word(value, where)
    if value is None:
        return None
    if isinstance(value, float | Decimal):
        value = _integral(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Unclear(f"{where} is {shown(value)}; a whole number of 0 or more is expected")
    return None if value in unset else value


def _integral(value: float | Decimal) -> int | float | Decimal:
    """An int where the value is one of moderate size, else the value itself."""
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if is_finite and abs(value) < 10**_MAX_DIGITS and value == int(value):
        return int(value)
    return value


def _from_word(word: str, where: str) -> int | None:
    if word.strip().upper() in _UNSET_WORDS:
        return None
    match = _NUMBER.fullmatch(word.strip())
    if match is None:
        raise Unclear(f"{where} is {shown(word)}; a whole number, NONE or UNLIMITED is expected")
    return int(match[1])


def memory_mib(value: object, where: str) -> int | None:
    """MiB, rounded up. Plain numbers are MB (Slurm's are MiB), texts may end in K, M, G, T or P."""
    if not isinstance(value, str) or value.strip().upper() in _UNSET_WORDS:
        return _number(value, where, _UNSET_LONG)
    match = _MEMORY.fullmatch(value.strip())
    if match is None:
        raise Unclear(f"{where} is {shown(value)}; MB or a number with K, M, G, T or P is expected")
    whole, fraction, unit = match.groups()
    fraction = fraction or ""
    kib = int(whole + fraction) * _KIB_PER_UNIT[unit.upper()]
    return int(-(-kib // (1024 * 10 ** len(fraction))))


class Tres(NamedTuple):
    """One trackable resource: `gres/gpu:a100=2` is gpu, a100, "2"; `mem=4G` is mem, None, "4G"."""

    name: str
    kind: str | None
    amount: str
    is_gres: bool


def tres_list(value: object, where: str) -> list[Tres]:
    """`cpu=4,mem=16G,gres/gpu=2`, `gres:gpu:a100:2` or `gpu:2`, in any mixture."""
    text = text_of(value, where)
    if len(text) > _MAX_TRES:
        raise Unclear(f"{where} has {len(text):,} characters; allowed are at most {_MAX_TRES:,}")
    found = []
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        bare = part.strip()
        if not bare or bare.upper() in _UNSET_WORDS:
            continue
        rest = re.sub(r"^gres[:/]", "", bare)
        match = _TRES.fullmatch(rest.replace("::", ":"))
        if match is None:
            raise Unclear(
                f"{where} has {shown(clean(part))}; name, name=count or gres/name:type=count is expected"
            )
        found.append(Tres(match[1].lower(), match[2], match[3] or "1", is_gres=rest != bare))
    return found


class ArrayTasks(NamedTuple):
    """How many tasks a pending array record stands for, and how many may run at once."""

    tasks: int
    limit: int | None


def array_tasks(text: str, where: str) -> ArrayTasks:
    """`0-9%3`, `1,3,5-9:2`, or the bitmap `0x1f`; raises `Unclear` for a list that was cut short."""
    spans, _, limit = text.strip().partition("%")
    if limit and not _LIMIT.fullmatch(limit):
        raise Unclear(f"{where} {shown(text)} has a limit that is not a number after %")
    if "..." in spans:
        raise Unclear(
            f"{where} {shown(text)} was cut short by Slurm, so its tasks cannot be counted:"
            " run squeue with SLURM_BITSTR_LEN=0 in its environment, or with --array"
        )
    most = int(limit) if limit and int(limit) else None
    if re.fullmatch(r"0x[0-9a-fA-F]+", spans, re.ASCII):
        return ArrayTasks(int(spans, 16).bit_count(), most)
    return ArrayTasks(sum(_span(span, text, where) for span in spans.split(",")), most)


def _span(span: str, text: str, where: str) -> int:
    match = _SPAN.fullmatch(span.strip().strip("[]"))
    first, last, step = match.groups() if match else (None, None, None)
    if first is None or int(last or first) < int(first) or step in ("0", "00"):
        raise Unclear(f"{where} is {shown(text)}; task numbers such as 0-9, 1,3,5-9:2 or 0-9%3 are expected")
    return (int(last or first) - int(first)) // int(step or 1) + 1

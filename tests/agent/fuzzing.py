"""Spoiled copies of what is valid, each made from a number alone, so that it can be made again."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import rfc8785

from tests.agent.rig import BUNDLE_KEY, bundle, letter, notice, withdrawal
from wire.bundle import write_bundle
from wire.notices import NoticeKind
from wire.signing import LetterKind, SigningKey, seal

Json = Any
ENOUGH = 200_000
# How many inputs each door gets.
COUNTS = {
    "notice": 30_000,
    "signed notice": 4000,
    "bundle": 15_000,
    "signed bundle": 2000,
    "event": 30_000,
    "receipt": 15_000,
    "message": 8000,
    "signed message": 2000,
    "line": 40_000,
    "socket": 1000,
    "metadata": 10_000,
    "answer": 1000,
    "own": 5000,
    "address": 5000,
    "headers": 25_000,
    "credentials": 10_000,
    "body": 10_000,
    "row": 5000,
    "held": 100,
    "known": 100,
    "trust": 100,
    "drain": 1500,
    "drain of before": 1500,
}
INSTANCE = "i-1"
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOTICES = (
    letter(notice(INSTANCE, 120, now=NOW)),
    letter(notice(INSTANCE, 120, now=NOW, kind=NoticeKind.ADVISORY, reason="maintenance")),
    letter(withdrawal(notice(INSTANCE, 120, now=NOW))),
)
BUNDLES = (write_bundle(bundle(INSTANCE, version=3), BUNDLE_KEY),)
LINES = (
    b'{"op":"notice"}',
    b'{"op":"watch"}',
    b'{"op":"checkpointed","generation":12,"bytes":345,"final":true}',
    b'{"op":"released","generation":1,"reason":"no answer"}',
)

# Written in place of these words: what `json.dumps` would not write.
UNWRITABLE = {
    '"@huge@"': "9" * 5000,
    '"@infinite@"': "1e999",
    '"@nan@"': "NaN",
    '"@deep@"': "[" * 3000 + "]" * 3000,
    '"@open@"': "[" * 20_000,
}
ODD: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 0.5, -0.0, 1e308, 10**30),
    *("", " ", "\x00", "\ud800", "\u202e\u0000x", "é" * 300, "x" * 5000, "1e5", "-", "/", "..", "null"),
    *([], {}, [[]], [{}], {"": ""}, {"\x00": 1}, [None] * 2000, {"a": {"b": {"c": []}}}),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-12:00", "2030-02-30T00:00:00Z"),
    *("2030-01-01T12:00:00", "2030-01-01", "1893499200", "2030-01-01T12:00:00+99:00"),
    *("withdrawal", "advisory", "hard", "00000000-0000-0000-0000-000000000000"),
    *(word[1:-1] for word in UNWRITABLE),
)


class Input(NamedTuple):
    """One input: what it is for, the number that it was made from, and the bytes."""

    target: str
    seed: int
    raw: bytes


def inputs(target: str, valid: Sequence[bytes], seeds: Sequence[int] = ()) -> Iterator[Input]:
    """Spoiled copies of what is valid, as many as the target gets, or those of some numbers again."""
    for seed in seeds or range(COUNTS[target]):
        dice = random.Random(seed)
        yield Input(target, seed, spoiled(dice, dice.choice(valid)))


def sealed(target: str, kind: LetterKind, valid: Sequence[bytes], key: SigningKey) -> Iterator[Input]:
    """Letters that are signed as they should be and say what they should not: their content is read too."""
    for seed in range(COUNTS[target]):
        dice = random.Random(seed)
        payload = changed(dice, json.loads(dice.choice(valid))["payload"])
        try:
            raw = seal(kind, payload, key)
        except (rfc8785.CanonicalizationError, ValueError, TypeError):
            # No signer could have made it.
            raw = json.dumps(
                {"kind": kind, "keyId": key.key_id, "payload": payload, "signature": ""}
            ).encode()
        yield Input(target, seed, raw)


def feed(given: Iterator[Input], take: Callable[[Input], object]) -> None:
    """Give every input; what is raised fails the test and says by which number the input is made again."""
    count, target = 0, ""
    for one in given:
        try:
            take(one)
        except Exception as error:
            raise AssertionError(f"{one.target} {one.seed}: {one.raw[:300]!r}") from error
        count, target = count + 1, one.target
    assert count == COUNTS[target]


async def feed_slowly(given: Iterator[Input], take: Callable[[Input], Awaitable[object]]) -> None:
    """The same for what has to be waited for."""
    count, target = 0, ""
    for one in given:
        try:
            await take(one)
        except Exception as error:
            raise AssertionError(f"{one.target} {one.seed}: {one.raw[:300]!r}") from error
        count, target = count + 1, one.target
    assert count == COUNTS[target]


def spoiled(dice: random.Random, valid: bytes) -> bytes:
    """Either the values that it holds are changed and written again, or its bytes are."""
    if dice.random() < 0.6:
        try:
            return written(changed(dice, json.loads(valid)))
        except ValueError:
            pass
    raw = bytearray(valid)
    for _ in range(dice.randrange(1, 4)):
        dice.choice(SPOILING)(dice, raw)
    return bytes(raw)


def written(value: Json) -> bytes:
    text = json.dumps(value)
    if "@" in text:
        for word, instead in UNWRITABLE.items():
            text = text.replace(word, instead)
    return text.encode()


def changed(dice: random.Random, value: Json) -> Json:
    """The value with one to three of its parts replaced, removed, added or put elsewhere."""
    root = {"": value}
    for _ in range(dice.randrange(1, 4)):
        place, key = _somewhere(dice, root)
        kind = dice.randrange(6)
        if kind == 0 and isinstance(place, dict) and place is not root:
            del place[key]
        elif kind == 1 and isinstance(place[key], dict):
            place[key][dice.choice(("", "extra", "kind", "__proto__"))] = odd(dice)
        elif kind == 2:
            other, name = _somewhere(dice, root)
            place[key] = json.loads(json.dumps(other[name]))
        else:
            place[key] = odd(dice)
    return root[""]


def odd(dice: random.Random) -> Json:
    chosen = dice.choice(ODD)
    return json.loads(json.dumps(chosen)) if isinstance(chosen, list | dict) else chosen


def _somewhere(dice: random.Random, root: dict[str, Json]) -> tuple[Json, Json]:
    place: Json = root
    key: Json = ""
    while isinstance(place[key], dict | list) and place[key] and dice.random() < 0.85:
        place = place[key]
        key = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
    return place, key


def _flip(dice: random.Random, raw: bytearray) -> None:
    if raw:
        raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)


def _cut(dice: random.Random, raw: bytearray) -> None:
    del raw[dice.randrange(len(raw) + 1) :]


def _insert(dice: random.Random, raw: bytearray) -> None:
    at = dice.randrange(len(raw) + 1)
    raw[at:at] = dice.choice((b"\x00", b"\xff", b"\n", b'"', b"\\u0000", b"\\ud800", b"{", b"]", b"1e999"))


def _repeat(dice: random.Random, raw: bytearray) -> None:
    at = dice.randrange(len(raw) + 1)
    raw[at:at] = raw[at : at + dice.randrange(1, 200)] * dice.randrange(1, 4)


def _twice(dice: random.Random, raw: bytearray) -> None:
    """A key that comes twice: which one counts must not depend on who reads."""
    start = raw.find(b'"')
    end = raw.find(b",", start)
    if 0 <= start < end:
        raw[start:start] = raw[start : end + 1]


def _splice(dice: random.Random, raw: bytearray) -> None:
    if raw:
        first, second = dice.randrange(len(raw)), dice.randrange(len(raw))
        size = dice.randrange(1, 40)
        raw[first : first + size] = raw[second : second + size]


SPOILING: tuple[Callable[[random.Random, bytearray], None], ...] = (
    *(_flip, _flip, _cut, _insert, _repeat, _twice, _splice),
)

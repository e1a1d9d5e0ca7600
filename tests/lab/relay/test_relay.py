"""The rules of the relay: once per decision, never later, and shown for as long as it stands."""

from __future__ import annotations

import resource
import signal
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lab.relay.decisions import Decision
from lab.relay.journal import Journal
from lab.relay.relay import AGAIN_AFTER, PUSHES, NoticeRelay, Publish
from lab.relay.standing import MOST_OF_A_KIND
from wire.notices import Notice, NoticeKind, read_notice
from wire.signing import KeyRing, SigningKey

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HALL = "eu-north-1a"
KEY = SigningKey("relay-1", Ed25519PrivateKey.generate())
RING = KeyRing({KEY.key_id: KEY.public_text})


class Bench:
    """A relay whose clock and bus belong to the test."""

    def __init__(self, journal: Journal | None = None, publish: Publish | None = None) -> None:
        self.now = START
        self.said: list[tuple[str, bytes]] = []
        self.relay = NoticeRelay(
            KEY, publish or self._publish, clock=self._clock, new_id=uuid.uuid4, journal=journal
        )

    def shown(self, instance_id: str) -> list[Notice]:
        read = [read_notice(text.encode(), RING, instance_id) for text in self.relay.letters(instance_id)]
        assert all(isinstance(one, Notice) for one in read)
        return [one for one in read if isinstance(one, Notice)]

    def _clock(self) -> datetime:
        return self.now

    async def _publish(self, subject: str, letter: bytes) -> None:
        self.said.append((subject, letter))


def hard(instance_id: str = "i-1", seconds: float = 120) -> Decision:
    return Decision(instance_id=instance_id, hall=HALL, seconds=seconds)


def advisory(instance_id: str = "i-1") -> Decision:
    return Decision(instance_id=instance_id, hall=HALL, kind=NoticeKind.ADVISORY, seconds=600)


async def test_a_decision_is_said_to_its_instance_alone_and_shown() -> None:
    bench = Bench()
    (notice,) = await bench.relay.decide([hard()])
    assert notice.issued_at == START
    assert notice.deadline == START + timedelta(seconds=120)
    assert [subject for subject, _ in bench.said] == [f"notices.{HALL}.i-1"]
    assert read_notice(bench.said[0][1], RING, "i-1") == notice
    assert bench.shown("i-1") == [notice]
    assert bench.shown("i-2") == []


async def test_asking_twice_is_asking_once_and_a_deadline_never_moves_back() -> None:
    bench = Bench()
    (first,) = await bench.relay.decide([hard()])
    bench.now += timedelta(seconds=30)
    assert await bench.relay.decide([hard()]) == (first,)
    assert len(bench.said) == 1
    (sooner,) = await bench.relay.decide([hard(seconds=10)])
    assert sooner.deadline == bench.now + timedelta(seconds=10)
    assert bench.shown("i-1") == [first, sooner]
    assert await bench.relay.decide([hard()]) == (sooner,)


async def test_of_two_decisions_in_one_call_the_sooner_counts() -> None:
    bench = Bench()
    for order in ([hard("i-1", 60), hard("i-1", 30)], [hard("i-2", 30), hard("i-2", 60)]):
        (notice,) = await bench.relay.decide(order)
        assert notice.deadline == START + timedelta(seconds=30)


async def test_an_advisory_stands_beside_the_hard_notice_that_follows() -> None:
    bench = Bench()
    (maybe,) = await bench.relay.decide([advisory()])
    (sure,) = await bench.relay.decide([hard()])
    assert bench.shown("i-1") == [maybe, sure]


async def test_a_withdrawal_takes_the_place_of_what_it_withdraws() -> None:
    bench = Bench()
    (notice,) = await bench.relay.decide([hard()])
    done = await bench.relay.withdraw([notice.notice_id, notice.notice_id])
    (withdrawal,) = done.notices
    assert withdrawal.withdraws == notice.notice_id
    assert bench.shown("i-1") == [withdrawal]
    assert (await bench.relay.withdraw([notice.notice_id])).notices == (withdrawal,)
    assert len(bench.said) == 2
    unknown = uuid.uuid4()
    refused = await bench.relay.withdraw([unknown, withdrawal.notice_id])
    assert refused == ((), (unknown, withdrawal.notice_id))


async def test_a_provider_that_changes_its_mind_does_not_grow_the_metadata() -> None:
    bench = Bench()
    for _ in range(3 * MOST_OF_A_KIND):
        (notice,) = await bench.relay.decide([hard()])
        await bench.relay.withdraw([notice.notice_id])
    (last,) = await bench.relay.decide([hard()])
    kinds = [one.kind for one in bench.shown("i-1")]
    assert kinds == [NoticeKind.WITHDRAWAL] * MOST_OF_A_KIND + [NoticeKind.HARD]
    assert bench.shown("i-1")[-1] == last
    for seconds in range(100, 70, -1):
        await bench.relay.decide([hard(seconds=seconds)])
    assert len(bench.shown("i-1")) == 2 * MOST_OF_A_KIND


async def test_a_hastened_notice_is_withdrawn_as_a_whole() -> None:
    """Nodes go by the earlier one as long as it is not withdrawn itself."""
    for which in (0, 1):
        bench = Bench()
        notices = await bench.relay.decide([hard()]) + await bench.relay.decide([hard(seconds=10)])
        done = await bench.relay.withdraw([notices[which].notice_id])
        assert {one.withdraws for one in done.notices} == {one.notice_id for one in notices}
        assert bench.shown("i-1") == list(done.notices)
        again = await bench.relay.withdraw([one.notice_id for one in notices])
        assert set(again.notices) == set(done.notices)


async def test_an_instance_that_outlived_its_notice_gets_another() -> None:
    bench = Bench()
    (first,) = await bench.relay.decide([hard()])
    bench.now += timedelta(seconds=121)
    (second,) = await bench.relay.decide([hard()])
    assert second.notice_id != first.notice_id
    assert second.deadline == bench.now + timedelta(seconds=120)


async def test_what_is_over_is_forgotten_and_may_happen_again() -> None:
    bench = Bench()
    (first,) = await bench.relay.decide([hard()])
    bench.now += timedelta(seconds=150)
    await bench.relay.tick()
    assert bench.shown("i-1") == [first]
    bench.now += timedelta(seconds=60)
    await bench.relay.tick()
    assert bench.shown("i-1") == []


async def test_a_notice_is_pushed_a_few_times_and_then_no_more() -> None:
    bench = Bench()
    await bench.relay.decide([hard()])
    await bench.relay.tick()
    assert len(bench.said) == 1
    for _ in range(2 * PUSHES):
        bench.now += AGAIN_AFTER
        await bench.relay.tick()
    assert len(bench.said) == PUSHES
    await bench.relay.push_again()
    assert len(bench.said) == PUSHES + 1


async def test_a_letter_that_the_bus_does_not_take_keeps_no_other_from_being_heard() -> None:
    said: list[str] = []

    async def publish(subject: str, letter: bytes) -> None:
        if subject.endswith("i-0"):
            raise ConnectionError("the bus is away")
        said.append(subject)

    bench = Bench(publish=publish)
    await bench.relay.decide([hard(f"i-{number}") for number in range(120)])
    assert bench.relay.failed_pushes == 1
    assert said == [f"notices.{HALL}.i-{number}" for number in range(1, 120)]
    assert all(len(bench.shown(f"i-{number}")) == 1 for number in range(120))


async def test_a_restart_forgets_nothing_that_stands(tmp_path: Path) -> None:
    before = Bench(Journal(tmp_path / "journal"))
    kept, taken_back = await before.relay.decide([hard("i-1"), hard("i-2")])
    (withdrawal,) = (await before.relay.withdraw([taken_back.notice_id])).notices
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"kind":"notice.v1","payl')
    after = Bench(Journal(tmp_path / "journal"))
    assert after.shown("i-1") == [kept]
    assert after.shown("i-2") == [withdrawal]
    assert await after.relay.decide([hard("i-1")]) == (kept,)
    (third,) = await after.relay.decide([hard("i-3")])
    assert Bench(Journal(tmp_path / "journal")).shown("i-3") == [third]


async def test_the_journal_holds_only_what_stands(tmp_path: Path) -> None:
    bench = Bench(Journal(tmp_path / "journal"))
    await bench.relay.decide([hard("i-1")])
    bench.now += timedelta(seconds=300)
    await bench.relay.tick()
    (later,) = await bench.relay.decide([hard("i-2")])
    assert [notice for notice, _ in Journal(tmp_path / "journal").read()] == [later]


class FullDisk(Journal):
    def append(self, letters: object) -> None:
        raise OSError(28, "No space left on device")


async def test_a_full_disk_keeps_no_notice_back(tmp_path: Path) -> None:
    bench = Bench(FullDisk(tmp_path / "journal"))
    (notice,) = await bench.relay.decide([hard()])
    assert len(bench.said) == 1
    assert bench.shown("i-1") == [notice]
    assert bench.relay.failed_writes == 1


def test_a_disk_that_takes_half_a_letter_is_told_of(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        with pytest.raises(OSError, match="No space left"):
            journal.append([b"x" * 100])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    journal.close()

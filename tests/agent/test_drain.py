"""Drains by a real agent process: what the work sees, what is told, and when."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.agent.rig import (
    BUNDLE_KEY,
    Node,
    Relay,
    boot_seconds,
    bundle,
    key,
    letter,
    node,
    notice,
    until,
    withdrawal,
)
from wire.bundle import DrainPath, write_bundle
from wire.notices import NoticeKind

ORDINARY = ["notice", "signalled", "work_ended", "drained"]


def draining(one: Node, *letters: bytes) -> None:
    """Lay letters down in the metadata and wait until the work has been told."""
    one.metadata.letters = list(letters)
    until(lambda: one.phase() not in (None, "heard", "signalling"))


def finished(one: Node) -> None:
    until(lambda: one.phase() == "finished")


def on_bus(one: Node, relay: Relay) -> None:
    """Let notices come by the bus alone: the metadata service never answers."""
    one.settings["SCO_AGENT_BUS_SERVERS"] = relay.url
    one.metadata.mode = "hangs"


def test_a_notice_said_fifty_times_is_one_drain(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        on_bus(one, relay)
        work = one.work("checkpoints")
        one.start()
        said = notice(one.instance_id)
        relay.say(one.instance_id, letter(said), times=50)
        finished(one)
        assert one.story() == ORDINARY
        assert len(work.said("SIGUSR1")) == 1
        assert work.said("checkpoint")
        events = {event["type"]: event for event in one.events()}
        assert {event["noticeId"] for type, event in events.items() if type != "ready"} == {
            str(said.notice_id)
        }
        assert events["drained"]["cause"] == "reclaim"
        assert events["drained"]["path"] == DrainPath.PLAIN
        assert (events["notice"]["path"], events["notice"]["noticeKind"]) == ("push", "hard")
        assert 0 < events["drained"]["secondsToSpare"] < 20
        assert events["signalled"]["secondsSinceNotice"] < 2


def test_notices_are_found_in_the_metadata_while_no_bus_answers(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.settings["SCO_AGENT_BUS_SERVERS"] = "nats://127.0.0.1:9"
        work = one.work("checkpoints")
        one.start()
        draining(one, letter(notice(one.instance_id)))
        finished(one)
        assert one.story() == ORDINARY
        assert len(work.said("SIGUSR1")) == 1


def test_the_deadline_file_tells_workloads_when_they_have_to_be_gone(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.work("ignores")
        one.start()
        said = notice(one.instance_id, 60)
        draining(one, letter(said))
        told = json.loads(one.deadline_file.read_text())
        assert told["noticeId"] == str(said.notice_id)
        assert said.deadline is not None
        assert abs((datetime.fromisoformat(told["deadline"]) - said.deadline).total_seconds()) < 0.01
        assert 50 < told["endsAtBootSeconds"] - boot_seconds() <= 60
        assert one.deadline_file.stat().st_mode & 0o777 == 0o644


def test_work_that_ignores_its_signal_overruns_and_is_ended_at_the_edge(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("ignores")
        one.start()
        draining(one, letter(notice(one.instance_id, 4)))
        finished(one)
        assert one.story() == ["notice", "signalled", "overrun", "work_ended"]
        overrun = one.told("overrun")[0]
        assert 0 < overrun["secondsToSpare"] <= 2
        assert "work.pid" in overrun["detail"]
        assert work.process.wait(5) == -9


@pytest.mark.parametrize("kind", ["forks", "stubborn child"])
def test_children_count_as_work_that_is_left(tmp_path: Path, kind: str) -> None:
    with node(tmp_path / "n") as one:
        work = one.work(kind)
        one.start()
        draining(one, letter(notice(one.instance_id, 5)))
        finished(one)
        assert ("overrun" in one.story()) == (kind == "stubborn child")
        assert work.process.wait(5) == 0
        assert one.kept()["drain"]["phase"] == "finished"


def test_work_that_exits_wrongly_has_ended_all_the_same(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("exits wrongly")
        one.start()
        draining(one, letter(notice(one.instance_id)))
        finished(one)
        assert one.story() == ORDINARY
        assert work.process.wait(5) == 7


def test_work_without_a_handler_for_the_signal_is_asked_by_term(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("knows only TERM")
        one.start()
        draining(one, letter(notice(one.instance_id, 4)))
        until(lambda: work.said("SIGTERM"))
        assert not work.said("SIGUSR1")


def test_a_withdrawal_ends_the_drain_and_the_work_goes_on(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("ignores")
        one.start()
        said = notice(one.instance_id, 4)
        draining(one, letter(said))
        one.metadata.letters.append(letter(withdrawal(said)))
        until(lambda: one.kept()["drain"] is None)
        until(lambda: not one.deadline_file.exists() and not one.kept()["to_uncordon"])
        assert work.runs
        again = notice(one.instance_id, 4)
        draining(one, letter(again))
        finished(one)
        assert one.story() == [
            "notice",
            "signalled",
            "withdrawn",
            "notice",
            "signalled",
            "overrun",
            "work_ended",
        ]


def test_a_withdrawn_notice_that_is_still_laid_down_begins_nothing(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("checkpoints")
        said = notice(one.instance_id)
        one.metadata.letters = [letter(said), letter(withdrawal(said))]
        one.start()
        until(lambda: one.metadata.asked > 4)
        assert one.events()[0]["type"] == "ready"
        assert one.story() == []
        assert work.runs


def test_a_later_notice_only_shortens_the_deadline(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.work("ignores")
        one.start()
        first, later, sooner = (notice(one.instance_id, seconds) for seconds in (40, 80, 5))
        draining(one, letter(first))
        ends_at = one.kept()["drain"]["ends_at"]
        one.metadata.letters += [letter(later), letter(sooner)]
        until(lambda: one.kept()["drain"]["ends_at"] < ends_at - 30)
        finished(one)
        assert one.story() == ["notice", "signalled", "notice", "overrun", "work_ended"]


@pytest.mark.parametrize("drains", [True, False])
def test_the_bundle_says_whether_an_advisory_drains(tmp_path: Path, drains: bool) -> None:
    with node(tmp_path / "n", drain_on_advisory=drains) as one:
        work = one.work("checkpoints")
        one.start()
        advisory = notice(one.instance_id, 30, kind=NoticeKind.ADVISORY)
        one.metadata.letters = [letter(advisory)]
        until(one.kept)
        if drains:
            finished(one)
        else:
            assert one.phase() is None
            shown = one.ask(op="notice")
            assert (shown["notice"], shown["noticeId"]) == ("advisory", str(advisory.notice_id))
            assert shown["remainingSeconds"] <= 30
            draining(one, letter(advisory), letter(notice(one.instance_id)))
            finished(one)
        assert len(work.said("SIGUSR1")) == 1
        said = [(event["noticeKind"], event["path"]) for event in one.told("notice")]
        assert said == ([("advisory", "poll")] if drains else [("advisory", "poll"), ("hard", "poll")])


@pytest.mark.parametrize("is_withdrawn", [True, False])
def test_work_knows_of_an_advisory_notice_while_it_stands(tmp_path: Path, is_withdrawn: bool) -> None:
    with node(tmp_path / "n") as one:
        one.start()
        advisory = notice(one.instance_id, 30 if is_withdrawn else 3, kind=NoticeKind.ADVISORY)
        one.metadata.letters = [letter(advisory)]
        until(lambda: one.ask(op="notice")["notice"] == "advisory")
        assert one.stop() == 0
        one.start()
        until(lambda: one.ask(op="notice")["notice"] == "advisory" or not is_withdrawn)
        if is_withdrawn:
            one.metadata.letters.append(letter(withdrawal(advisory)))
        until(lambda: one.ask(op="notice")["notice"] == "none")
        assert one.phase() is None


def test_the_node_that_outlives_its_deadline_takes_work_again(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.settings["SCO_AGENT_LIVES_ON_SECONDS"] = "1"
        one.work("checkpoints")
        one.start()
        draining(one, letter(notice(one.instance_id, 3)))
        until(lambda: one.kept()["drain"] is None)
        until(lambda: not one.deadline_file.exists())
        assert one.story() == ORDINARY


def test_refused_notices_are_told_once_and_stop_nothing(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        one.settings["SCO_AGENT_BUS_SERVERS"] = relay.url
        one.work("checkpoints")
        one.start()
        mine, done = one.instance_id, notice(one.instance_id)
        stale = notice(mine, now=done.issued_at.replace(year=2020))
        bad = [b"{", letter(notice(mine), key("stranger")), letter(notice("i-other")), letter(stale)]
        one.metadata.letters = [*bad, letter(done), letter(withdrawal(done))]
        until(lambda: one.kept().get("memory"))
        relay.say(mine, letter(done), *bad, times=20)
        until(lambda: "replayed" in one.log())
        draining(one, letter(notice(mine)))
        finished(one)
        details = [event["detail"].split(" by ")[0] for event in one.told("refused")]
        assert sorted(details) == ["foreign", "forged", "malformed", "replayed", "stale"]
        assert [word for word in one.story() if word != "refused"] == ORDINARY


@pytest.mark.parametrize("mode", ["fails", "babbles"])
def test_a_metadata_service_that_talks_nonsense_does_not_stop_the_bus(
    tmp_path: Path, relay: Relay, mode: str
) -> None:
    with node(tmp_path / "n") as one:
        on_bus(one, relay)
        one.metadata.mode = mode
        one.work("checkpoints")
        one.start()
        relay.say(one.instance_id, letter(notice(one.instance_id)))
        finished(one)
        assert one.story() == ORDINARY


def test_a_bundle_whose_file_is_corrupt_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("checkpoints")
        one.state.mkdir()
        (one.state / "bundle.json").write_bytes(b"\x00" * 100)
        newer = bundle(one.instance_id, version=2, signal="TERM")
        (one.state / "bundle.previous.json").write_bytes(write_bundle(newer, BUNDLE_KEY))
        one.start()
        draining(one, letter(notice(one.instance_id)))
        until(lambda: work.said("SIGTERM"))
        finished(one)
        assert one.story() == ORDINARY


EXHAUST = """
import os, resource, threading, time
flag = os.path.join(os.environ["SCO_AGENT_RUN_DIR"], "exhaust")

def exhaust():
    while not os.path.exists(flag):
        time.sleep(0.02)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    while os.path.exists(flag):
        try:
            held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            time.sleep(0.005)
    for one in held:
        os.close(one)

threading.Thread(target=exhaust, daemon=True).start()
"""


def test_an_agent_without_file_descriptors_does_not_take_its_work_to_be_gone(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        work = one.work("ignores")
        one.start(prelude=EXHAUST)
        draining(one, letter(notice(one.instance_id, 8)))
        until(lambda: one.phase() == "signalled")
        flag = one.folder / "run" / "exhaust"
        flag.touch()
        until(lambda: "Too many open files" in one.log())
        time.sleep(2)
        assert work.runs
        flag.unlink()
        finished(one)
        assert not work.runs
        assert one.story() == ["notice", "signalled", "overrun", "work_ended"]

"""The socket for workloads: it answers and records, it cannot be used up, and it moves nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from agent.board import Level, NoticeBoard, NoticeState
from agent.socket import AgentSocket, Allowance, CheckpointReport, SocketLimits
from agent.socket_lines import MAX_LINE
from agent.socket_peer import Peer, is_same, peer_of, start_of
from tests.agent.sockets import NOTICE_ID, ROOMY, Ends, door, notice
from tests.agent.spooling import until
from wire.notices import NoticeKind


async def test_a_workload_asks_whether_the_node_is_wanted_back(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        line = await opened.line()
        assert await line.ask(op="notice") == {"ok": True, "notice": "none"}
        opened.board.publish(NoticeState.of(notice(), Ends()))
        assert await line.ask(op="notice") == {
            "ok": True,
            "notice": "hard",
            "noticeId": str(NOTICE_ID),
            "cause": "reclaim",
            "deadline": "2030-01-01T12:02:00.000Z",
            "remainingSeconds": 101.5,
        }
        assert stat.S_IMODE(opened.path.stat().st_mode) == 0o666
    assert not tmp_path.joinpath("agent.sock").exists()


async def test_however_many_come_at_once_none_is_lost_and_the_loop_goes_on(tmp_path: Path) -> None:
    many = ROOMY._replace(connections=300, connections_per_uid=300)
    async with door(tmp_path, limits=many) as opened:
        lines = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        try:
            for line in lines:
                # As with a limit of time: where no room is left to wait, it fails at once.
                line.setblocking(False)
                line.connect(str(opened.path))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert opened.socket.stats().connections < 50
            await until(lambda: opened.socket.stats().connections == len(lines), "all are heard")
        finally:
            for line in lines:
                line.close()


async def test_who_watches_is_told_every_change_at_once(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        lines = [await opened.line() for _ in range(5)]
        for line in lines:
            assert (await line.ask(op="watch"))["notice"] == "none"
        for kind, said in (
            (NoticeKind.ADVISORY, "advisory"),
            (NoticeKind.HARD, "hard"),
            (NoticeKind.WITHDRAWAL, "none"),
        ):
            opened.board.publish(NoticeState.of(notice(kind), None))
            for line in lines:
                assert (await line.next())["notice"] == said
        # A watch does not take the line: reports still come through, and a second watch adds nothing.
        assert (await lines[0].ask(op="watch"))["notice"] == "none"
        assert await lines[0].ask(op="checkpointed", generation=3, bytes=10) == {"ok": True}
        opened.board.publish(NoticeState(Level.ADVISORY))
        assert (await lines[0].next())["notice"] == "advisory"
        assert (await lines[0].ask(op="notice"))["notice"] == "advisory"


async def test_reports_carry_who_made_them_and_change_nothing_else(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        opened.board.publish(NoticeState.of(notice(), Ends()))
        before = (opened.board.state, opened.board.version)
        line = await opened.line()
        assert await line.ask(op="checkpointed", generation=12, bytes=2048, final=True) == {"ok": True}
        assert await line.ask(op="released", generation=13, reason="no\nanswer") == {"ok": True}
        me = f"uid {os.getuid()}, pid {os.getpid()}"
        assert [report.detail() for report in opened.reports if isinstance(report, CheckpointReport)] == [
            f"generation 12, final, 2048 bytes ({me})",
            f"lease released ({me}): no?answer",
        ]
        assert is_same(opened.reports[0].peer)
        assert (opened.board.state, opened.board.version) == before
        assert opened.socket.stats()[1:] == (2, 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"\n",
        b"{}\n",
        b"null\n",
        b'"notice"\n',
        b"\xff\xfe\n",
        b'{"op": "drain"}\n',
        b'{"op": ["notice"]}\n',
        b'{"op": "checkpointed"}\n',
        b'{"op": "checkpointed", "generation": -1, "bytes": 1}\n',
        b'{"op": "checkpointed", "generation": 1e400, "bytes": 1}\n',
        b'{"op": "checkpointed", "generation": "1", "bytes": true}\n',
        b'{"op": "checkpointed", "generation": 9007199254740992, "bytes": 1}\n',
        b'{"op": "released", "reason": "' + b"x" * 200 + b'"}\n',
        b"[" * 4000 + b"\n",
    ],
)
async def test_what_is_no_line_is_refused_and_the_next_one_is_answered(tmp_path: Path, raw: bytes) -> None:
    async with door(tmp_path) as opened:
        line = await opened.line()
        await line.send(raw)
        refused = await line.next()
        assert (refused["ok"], refused["error"]) == (False, "malformed")
        assert refused["message"]
        assert (await line.ask(op="notice"))["ok"]
        assert opened.reports == []


async def test_a_line_without_end_is_cut_off(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        line = await opened.line()
        await line.send(b"x" * (3 * MAX_LINE))
        assert (await line.next())["error"] == "too_long"
        await until(lambda: opened.socket.stats().connections == 0, "cut off")


async def test_connections_are_bounded_for_each_user_and_in_all(tmp_path: Path) -> None:
    for limits in (SocketLimits(connections_per_uid=3), SocketLimits(connections=3)):
        async with door(tmp_path, limits) as opened:
            lines = [await opened.line() for _ in range(3)]
            for line in lines:
                assert (await line.ask(op="notice"))["ok"]
            more = await opened.line()
            assert (await more.next())["error"] == "too_many"
            assert await more.ended()
            lines[0].writer.close()
            await until(lambda: opened.socket.stats().connections == 2, "one has gone")
            assert (await (await opened.line()).ask(op="notice"))["ok"]


async def test_who_is_not_named_is_turned_away(tmp_path: Path) -> None:
    async with door(tmp_path, uids=frozenset({os.getuid() + 1})) as opened:
        assert (await (await opened.line()).next())["error"] == "foreign"


async def test_lines_and_reports_are_taken_at_a_bounded_rate(tmp_path: Path) -> None:
    limits = SocketLimits(lines=(0.001, 3))
    async with door(tmp_path, limits) as opened:
        line = await opened.line()
        answers = [(await line.ask(op="notice")).get("error") for _ in range(5)]
        assert answers == [None, None, None, "too_often", "too_often"]
        assert (await (await opened.line()).ask(op="notice"))["ok"]
    for limits in (SocketLimits(reports_per_uid=(0.001, 2)), SocketLimits(reports=(0.001, 2))):
        async with door(tmp_path, limits) as opened:
            for expected in (None, None, "too_often"):
                line = await opened.line()
                told = await line.ask(op="checkpointed", generation=1, bytes=1)
                assert told.get("error") == expected
            assert len(opened.reports) == 2
            assert (await line.ask(op="notice"))["ok"]


async def test_who_says_nothing_is_hung_up_on_and_who_watches_is_not(tmp_path: Path) -> None:
    async with door(tmp_path, SocketLimits(idle_seconds=1)) as opened:
        silent, watching = await opened.line(), await opened.line()
        await watching.ask(op="watch")
        assert await silent.ended()
        opened.board.publish(NoticeState(Level.HARD))
        assert (await watching.next())["notice"] == "hard"


async def test_who_does_not_read_is_cut_off(tmp_path: Path) -> None:
    async with door(tmp_path, ROOMY._replace(unread_bytes=1024)) as opened:
        deaf = await opened.line()
        await deaf.ask(op="watch")
        for _ in range(20_000):
            opened.board.publish(NoticeState.of(notice(), Ends()))
            await asyncio.sleep(0)
            if not opened.socket.stats().connections:
                break
        await until(lambda: opened.socket.stats().connections == 0, "cut off")


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    first = AgentSocket(path, NoticeBoard(), lambda _: None)
    await first.start()
    async with door(tmp_path) as opened:
        assert (await (await opened.line()).ask(op="notice"))["ok"]
    await first.close()
    await first.close()


async def test_the_peer_is_the_process_that_connected_whatever_its_number_becomes(tmp_path: Path) -> None:
    peers: list[Peer] = []
    server = await asyncio.start_unix_server(
        lambda _, writer: peers.append(peer_of(writer.get_extra_info("socket"))), tmp_path / "s"
    )
    program = f"import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect({str(tmp_path / 's')!r})"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"{program}; sys.stdin.read()", stdin=asyncio.subprocess.PIPE
    )
    await until(lambda: bool(peers), "connected")
    assert (peers[0].uid, peers[0].gid, peers[0].pid) == (os.getuid(), os.getgid(), child.pid)
    assert is_same(peers[0])
    child.kill()
    await child.wait()
    assert not is_same(peers[0])
    assert not is_same(peers[0]._replace(pid=os.getpid()))
    # Already gone when it is looked at: its number is not believed.
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await gone.wait()
    await until(lambda: len(peers) == 2, "connected and gone")
    assert peers[1].pid in (0, gone.pid)
    assert start_of(2**30) is None
    server.close()


def test_an_allowance_fills_up_again() -> None:
    now = [0.0]
    allowance = Allowance((2.0, 4), lambda: now[0])
    assert [allowance.take() for _ in range(5)] == [True] * 4 + [False]
    now[0] += 1.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]
    now[0] += 1000.0
    assert [allowance.take() for _ in range(5)] == [True] * 4 + [False]

"""Whatever a workload sends is read or refused: the socket goes on, and says why."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agent.socket_lines import CheckpointReport, Released, read_request
from agent.socket_peer import Peer
from tests.agent.sockets import ROOMY, door
from tests.agent.spooling import until


async def test_nothing_that_is_sent_breaks_it(tmp_path: Path) -> None:
    dice = random.Random(5)
    pieces = [b'{"op":', b'"notice"', b'"watch"', b"}", b"\n", b"\x00", b"\xff", b"{", b"[", b'"', b"9" * 30]
    async with door(tmp_path, ROOMY) as opened:
        for _ in range(300):
            line = await opened.line()
            chunks = [
                dice.choice((dice.choice(pieces), dice.randbytes(dice.randrange(300)))) for _ in range(12)
            ]
            try:
                await line.send(b"".join(chunks))
            except ConnectionError:
                continue
            line.writer.close()
        await until(lambda: opened.socket.stats().connections == 0, "all have gone")
        assert (await (await opened.line()).ask(op="notice")) == {"ok": True, "notice": "none"}


def test_two_hundred_thousand_lines_are_read_or_refused() -> None:
    dice = random.Random(11)
    seeds = [
        b'{"op":"notice"}',
        b'{"op":"watch"}',
        b'{"op":"checkpointed","generation":12,"bytes":345,"final":true}',
        b'{"op":"released","generation":1,"reason":"no answer"}',
    ]
    read = refused = 0
    for _ in range(200_000):
        line = bytearray(dice.choice(seeds))
        for _ in range(dice.randrange(3)):
            line[dice.randrange(len(line))] = dice.randrange(256)
        if isinstance(read_request(bytes(line)), str):
            refused += 1
        else:
            read += 1
    assert read > 10_000
    assert refused > 10_000


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_reason(line: bytes) -> None:
    answered = read_request(line)
    assert answered


@given(st.text(max_size=120))
def test_what_a_workload_says_stays_one_line(reason: str) -> None:
    report = CheckpointReport(Released(op="released", reason=reason), Peer(1, 1))
    assert len(report.detail().splitlines()) == 1
    assert len(report.detail()) <= 300

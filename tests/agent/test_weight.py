"""What the agent costs a node: memory, idle processor time, and how long it takes to be ready."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.agent.rig import Node, Relay, letter, node, notice, until

MOST_MIB = 60
# A share of one processor, seen over seconds on a machine that does other things too.
MOST_IDLE = 0.03
LOOK_SECONDS = 3.0


def resident_mib(one: Node) -> float:
    assert one.process is not None
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def processor_seconds(one: Node) -> float:
    assert one.process is not None
    fields = Path(f"/proc/{one.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_agent_is_light_while_it_waits_and_while_it_drains(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        one.settings |= {"SCO_AGENT_BUS_SERVERS": relay.url, "SCO_AGENT_POLL_SECONDS": "5"}
        one.work("checkpoints")
        one.start()
        before = processor_seconds(one)
        time.sleep(LOOK_SECONDS)
        assert (processor_seconds(one) - before) / LOOK_SECONDS <= MOST_IDLE
        relay.say(one.instance_id, letter(notice(one.instance_id)))
        until(lambda: one.phase() == "finished")
        assert resident_mib(one) <= MOST_MIB

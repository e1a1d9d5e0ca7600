"""What an operator sees of one agent: its counts, and whether its node is ready for work."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from lab.stack.ports import any_free
from tests.agent.rig import Relay, letter, node, notice, until


def scraped(port: int) -> dict[str, float]:
    """Samples by name and the values of their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {" ".join((one.name, *one.labels.values())): one.value for f in families for one in f.samples}


def test_what_waits_what_is_sent_and_what_workloads_say_is_counted(tmp_path: Path, relay: Relay) -> None:
    with node(tmp_path / "n") as one:
        port = any_free({})
        one.settings |= {"SCO_AGENT_BUS_SERVERS": relay.url, "SCO_AGENT_METRICS_PORT": str(port)}
        one.start()
        assert one.ask(op="checkpointed", generation=1, bytes=10)["ok"]
        assert not one.ask(op="conquer")["ok"]
        # The bus of this test keeps nothing, so nothing that is sent is acknowledged.
        until(lambda: scraped(port)["sco_agent_uplink_messages_total failed"] > 0)
        found = scraped(port)
        assert found["sco_agent_spool_events disk"] + found["sco_agent_spool_events memory"] >= 2
        assert found["sco_agent_spool_bytes"] > 0
        assert found["sco_agent_spool_lost_events_total"] == 0
        assert found["sco_agent_uplink_messages_total sent"] == 0
        assert found["sco_agent_uplink_receipts_total taken"] == 0
        assert found["sco_agent_socket_reports_total"] == 1
        assert found["sco_agent_socket_refused_total"] == 1


def test_a_checkpoint_that_was_not_written_is_not_told_as_one(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.start()
        assert one.ask(op="released", generation=4, reason="the store does not answer")["ok"]
        (told,) = one.told("checkpoint_failed")
        assert told["detail"].endswith("the store does not answer")
        assert one.told("checkpointed") == []


def test_a_node_that_drains_is_not_ready_for_work(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.work("ignores")
        one.metadata.letters = [letter(notice(one.instance_id, 60))]
        one.start()
        until(lambda: one.phase() == "signalled")
        one.stop()
        before = one.told("ready")
        one.start()
        assert "STATUS=draining" in one.signs()
        assert one.told("ready") == before

"""The figures of the big drill, from a small one, and from one that went wrong."""

from __future__ import annotations

import pytest

from lab.bench import node_drains, relay_fanout
from lab.bench.node_drains import figures
from lab.nodes.at_once import AtOnce, Size, Taken
from lab.nodes.workloads import Kind
from wire.lifecycle import EventType


def test_the_drill_runs_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NODES": 8, "SEPARATE": 2, "PROCESSES": 2, "WARNING_SECONDS": 8.0}.items():
        monkeypatch.setattr(node_drains, name, value)
    found = {one.name: one for one in node_drains.measure()}
    assert set(found) == {
        "notice_to_signal_p99_ms",
        "drain_overruns_of_8",
        "agent_rss_mb",
        "event_to_history_p99_s",
    }
    assert 0 < found["notice_to_signal_p99_ms"].value < 6000
    assert found["drain_overruns_of_8"].value == 0
    assert found["agent_rss_mb"].value > 0
    assert 0 < found["event_to_history_p99_s"].value < 60


def test_who_was_never_told_is_counted_as_late_as_can_be() -> None:
    good = Taken("i-1", Kind.HONEST, True, 0.2, (EventType.NOTICE, EventType.DRAINED))
    silent = Taken("i-2", Kind.HONEST, False, None, (EventType.NOTICE,))
    size = Size((Kind.HONEST,), (Kind.HONEST,), 1, 30.0)
    found = {one.name: one.value for one in figures(AtOnce((good, silent), (), 0.1, 50.0, 51.0), size)}
    assert found == {"notice_to_signal_p99_ms": 30_000, "drain_overruns_of_2": 1, "agent_rss_mb": 51.0}


def test_a_fan_out_is_measured_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"INSTANCES": 200, "CONNECTIONS": 4, "ROUNDS": 1}.items():
        monkeypatch.setattr(relay_fanout, name, value)
    (figure,) = relay_fanout.measure()
    assert figure.name == "relay_fanout_200_p99_ms"
    assert 0 < figure.value < 30_000

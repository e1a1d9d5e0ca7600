"""What parts of the agent count of themselves, read when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from agent.socket import SocketStats
    from agent.spool import Spool
    from agent.uplink import UplinkStats


class KeptCounts(Collector):
    """The counts of spool, uplink and socket; the latter two are there once their part runs."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.uplink: Callable[[], UplinkStats] | None = None
        self.socket: Callable[[], SocketStats] | None = None

    def collect(self) -> Iterator[Metric]:
        yield from _of_spool(self._spool)
        if self.uplink is not None:
            yield from _of_uplink(self.uplink())
        if self.socket is not None:
            yield from _of_socket(self.socket())


def _of_spool(spool: Spool) -> Iterator[Metric]:
    stats = spool.stats()
    events = GaugeMetricFamily(
        "sco_agent_spool_events",
        "Events that the history does not keep yet, by where they wait.",
        labels=["place"],
    )
    events.add_metric(["disk"], stats.events - stats.in_memory)
    events.add_metric(["memory"], stats.in_memory)
    yield events
    yield GaugeMetricFamily("sco_agent_spool_bytes", "Size of the spool on disk.", spool.size_on_disk())
    yield CounterMetricFamily("sco_agent_spool_lost_events", "Events given up.", stats.lost)


def _of_uplink(stats: UplinkStats) -> Iterator[Metric]:
    messages = CounterMetricFamily(
        "sco_agent_uplink_messages",
        "Events sent, repetitions included, and failures to send.",
        labels=["outcome"],
    )
    messages.add_metric(["sent"], stats.sent)
    messages.add_metric(["failed"], stats.failed)
    yield messages
    receipts = CounterMetricFamily(
        "sco_agent_uplink_receipts", "Receipts of the history, and what was none.", labels=["outcome"]
    )
    receipts.add_metric(["taken"], stats.receipts)
    receipts.add_metric(["malformed"], stats.bad_receipts)
    yield receipts


def _of_socket(stats: SocketStats) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "sco_agent_socket_connections", "Workloads connected to the agent's socket.", stats.connections
    )
    yield CounterMetricFamily("sco_agent_socket_reports", "Reports of workloads.", stats.reports)
    yield CounterMetricFamily(
        "sco_agent_socket_refused", "Connections and lines of workloads that were refused.", stats.refused
    )

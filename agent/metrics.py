"""What the agent counts, for Prometheus, on a loopback port."""

from __future__ import annotations

import logging

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)

LOOPBACK = "127.0.0.1"
TO_SIGNAL_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.4, 2.0, 5.0)
log = logging.getLogger("sco.agent")


class AgentMetrics:
    """The metrics of one agent; each has its own registry, so that several can live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._of_notices(registry)
        self._of_drains(registry)
        self._of_readiness(registry)

    def _of_notices(self, registry: CollectorRegistry) -> None:
        self.notices = Counter(
            "sco_agent_notices_total",
            "Notices read, by what they meant.",
            ["source", "verdict"],
            registry=registry,
        )
        self.refused = Counter(
            "sco_agent_notices_refused_total",
            "Notices refused, by reason.",
            ["source", "reason"],
            registry=registry,
        )
        self.source_up = Gauge(
            "sco_agent_source_up", "1 while a source of notices answers.", ["source"], registry=registry
        )
        self.clock_offset = Gauge(
            "sco_agent_clock_offset_seconds",
            "How far the wall clock is behind the provider's.",
            registry=registry,
        )

    def _of_drains(self, registry: CollectorRegistry) -> None:
        self.to_signal = Histogram(
            "sco_agent_notice_to_signal_seconds",
            "From a notice to the signal of the work.",
            buckets=TO_SIGNAL_BUCKETS,
            registry=registry,
        )
        self.drains = Counter(
            "sco_agent_drains_total",
            "Drains by how they ended.",
            ["outcome"],
            registry=registry,
        )
        self.local_paths = Counter(
            "sco_agent_local_path_total",
            "Drains signalled past a scheduler that did not answer.",
            registry=registry,
        )
        self.draining = Gauge("sco_agent_draining", "1 while a drain is under way.", registry=registry)
        self.write_failures = Counter(
            "sco_agent_write_failures_total",
            "Files not written in time.",
            ["file"],
            registry=registry,
        )

    def _of_readiness(self, registry: CollectorRegistry) -> None:
        self.ready = Gauge(
            "sco_agent_ready",
            "1 while a notice would reach the agent and it could drain.",
            registry=registry,
        )
        self.checks = Gauge(
            "sco_agent_check_ok", "1 for each passed part of the self-check.", ["check"], registry=registry
        )
        self.bundle_version = Gauge(
            "sco_agent_bundle_version", "Version of the bundle held.", registry=registry
        )
        self.bundle_age = Gauge(
            "sco_agent_bundle_age_seconds", "Age of the bundle held, by the wall clock.", registry=registry
        )
        self.bundles_refused = Counter(
            "sco_agent_bundles_refused_total", "Bundles refused, by reason.", ["reason"], registry=registry
        )
        self.refresh_failures = Counter(
            "sco_agent_bundle_refresh_failures_total",
            "Times that nobody gave a bundle.",
            registry=registry,
        )
        self.restarts = Counter(
            "sco_agent_task_restarts_total",
            "Parts of the agent that were started again.",
            ["task"],
            registry=registry,
        )

    def serve(self, port: int) -> None:
        """Answer Prometheus on a loopback port. A port that is taken costs the metrics, never the agent."""
        try:
            start_http_server(port, addr=LOOPBACK, registry=self.registry)
        except OSError as error:
            log.warning("no metrics on port %d: %s", port, error.strerror)

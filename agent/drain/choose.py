"""The driver of each drain path, made from the settings. What a path needs is loaded when it is asked for."""

from __future__ import annotations

from agent.drain.plain import PlainDriver, PlainPlaces, PlainWork
from agent.drain.ports import DrainDriver
from agent.settings import AgentSettings
from wire.bundle import DrainPath


class Drivers:
    """Makes a new driver for each drain; who was met at the plain places is remembered between them."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._plain = PlainWork(
            PlainPlaces(
                units=settings.units,
                cgroups=settings.cgroups,
                pid_files=settings.pid_files,
                cgroup_root=settings.cgroup_root,
            )
        )

    def plain(self) -> DrainDriver:
        return PlainDriver(self._plain.find, self._plain.kill_at_once)

    def for_path(self, path: DrainPath) -> DrainDriver:
        """The driver of a path. RuntimeError or ValueError says what is missing for it on this node."""
        return self.plain()

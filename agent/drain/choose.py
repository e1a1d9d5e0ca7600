"""The driver of each drain path, made from the settings. What a path needs is loaded when it is asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.drain.plain import PlainDriver, PlainPlaces, PlainWork
from agent.drain.plain_endings import PlainEndings, Reported
from agent.drain.ports import DrainDriver
from agent.files import read_bounded
from agent.settings import AgentSettings
from wire.bundle import DrainPath

if TYPE_CHECKING:
    from agent.drain.kube_api import KubeAccess
    from agent.drain.slurm_written import Written

KEY = "key.pem"


class Drivers:
    """Makes a new driver for each drain; who was met at the plain places is remembered between them."""

    def __init__(self, settings: AgentSettings, instance_id: str) -> None:
        self._settings, self._instance_id = settings, instance_id
        self._written: Written | None = None
        self._plain = PlainWork(
            PlainPlaces(
                units=settings.units,
                cgroups=settings.cgroups,
                pid_files=settings.pid_files,
                cgroup_root=settings.cgroup_root,
            )
        )
        self._reported = Reported(self._plain.find)

    def plain(self) -> DrainDriver:
        endings = PlainEndings(self._settings.units, self._reported)
        return PlainDriver(self._plain.find, self._plain.kill_at_once, endings)

    def work_ended(self, pid: int, started: int, exit_code: int) -> None:
        """A process of this node says how its own work ended; of others' it is not believed."""
        if pid > 0:
            self._reported.take(pid, started, exit_code)

    def for_path(self, path: DrainPath) -> DrainDriver:
        """The driver of a path. RuntimeError or ValueError says what is missing for it on this node."""
        makers: dict[DrainPath, Callable[[], DrainDriver]] = {
            DrainPath.KUBERNETES: self._kubernetes,
            DrainPath.SPARK: self._spark,
            DrainPath.SLURM: self._slurm,
            DrainPath.PLAIN: self.plain,
        }
        return makers[path]()

    async def last_checkpoint(self, pid: int, uid: int) -> None:
        """A process of this node says that its work has written for the last time and may go."""
        if self._written is not None and pid > 0:
            await asyncio.to_thread(self._written.take, pid, uid)

    @property
    def _node(self) -> str:
        return self._settings.node_name or socket.gethostname().split(".")[0]

    def _kubernetes(self) -> DrainDriver:
        from agent.drain.kube_api import KubeApi  # noqa: PLC0415 - only nodes of Kubernetes load it
        from agent.drain.kubernetes import KubernetesDriver  # noqa: PLC0415

        return KubernetesDriver(KubeApi(self._kube_access()), self._node)

    def _spark(self) -> DrainDriver:
        from agent.drain.kube_api import KubeApi  # noqa: PLC0415
        from agent.drain.spark import SparkDriver  # noqa: PLC0415

        return SparkDriver(KubeApi(self._kube_access()), self._node)

    def _kube_access(self) -> KubeAccess:
        from agent.drain.kube_api import KubeAccess  # noqa: PLC0415

        settings = self._settings
        if settings.kubernetes_url is None:
            raise ValueError("SCO_AGENT_KUBERNETES_URL is not set: it names the API server of the cluster")
        return KubeAccess(
            settings.kubernetes_url, settings.kubernetes_token_file, settings.kubernetes_ca_file
        )

    def _slurm(self) -> DrainDriver:
        from agent.drain.slurm import SlurmDriver  # noqa: PLC0415 - only nodes of Slurm load it
        from agent.drain.slurm_forwarder import ForwarderAccess, SlurmForwarder  # noqa: PLC0415
        from agent.drain.slurm_local import processes_of_jobs  # noqa: PLC0415
        from agent.drain.slurm_written import Written  # noqa: PLC0415

        settings = self._settings
        if settings.slurm_url is None:
            raise ValueError("SCO_AGENT_SLURM_URL is not set: it names the forwarder beside slurmctld")
        access = ForwarderAccess(settings.slurm_url, settings.slurm_ca_file)
        forwarder = SlurmForwarder(access, self._own_key(), self._instance_id)
        node = self._node
        if self._written is None:
            self._written = Written(lambda: processes_of_jobs(node))
        return SlurmDriver(forwarder, node, checkpointed=self._written.since)

    def _own_key(self) -> Ed25519PrivateKey:
        """The key by which the forwarder knows this node; it is there once the node has its identity."""
        raw = read_bounded(self._settings.state_dir / KEY)
        if raw is None:
            raise ValueError("this node has no identity yet, and the forwarder would not know it")
        key = serialization.load_pem_private_key(raw, None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{KEY} holds no Ed25519 key")
        return key

"""Spark's pods: executors move their blocks away before they are evicted, drivers go last."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.drain import kubernetes
from agent.drain.processes import Process
from agent.drain.spark import SparkDriver, decommissions
from tests.agent.drain.cluster import NODE, Drain, draining

EXECUTOR = {"spark-role": "executor", "spark-app-selector": "app-1"}
DRIVER = {"spark-role": "driver", "spark-app-selector": "app-1"}
# Stands for an executor's JVM: tells when it is ready and when it was decommissioned, and lives on.
PROCESS = """
import signal, sys
def heard(number, frame):
    open(sys.argv[2], "a").write("decommissioned ")
if sys.argv[3] == "understands":
    signal.signal(signal.SIGPWR, heard)
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an API that is well may take more than the second that an agent gives it."""
    monkeypatch.setattr(kubernetes, "SIGNAL_SECONDS", 10.0)


async def process(file: Path, backend: str, understands: str = "understands") -> asyncio.subprocess.Process:
    command = [sys.executable, "-c", PROCESS, backend, str(file), understands]
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert started.stdout is not None
    await started.stdout.readline()
    return started


async def heard(file: Path) -> str:
    async with asyncio.timeout(20):
        while not (told := read(file)):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
    return told


def read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def executor(drain: Drain, name: str, pid: int, **options: Any) -> None:
    pod = drain.cluster.add_pod(name, NODE, labels=EXECUTOR, **options)
    drain.cluster.ends_after[name] = 1e6
    drain.processes[pod["metadata"]["uid"]] = (pid,)


async def test_an_executor_is_decommissioned_and_evicted_only_when_it_must_end(tmp_path: Path) -> None:
    running = await process(tmp_path / "heard", "org.apache.spark.executor.CoarseGrainedExecutorBackend")
    async with draining(SparkDriver) as drain:
        executor(drain, "exec-1", running.pid, grace_seconds=30)
        await drain.signal()
        assert await heard(tmp_path / "heard") == "decommissioned"
        assert await drain.left() == ["default/exec-1"]
        assert drain.asked() == []
        drain.deadline.seconds = 33.0
        await drain.left()
        assert drain.asked() == [("evict", "exec-1", 30)]
    running.kill()
    await running.wait()


async def test_an_executor_with_sparks_own_hook_is_evicted_at_once(tmp_path: Path) -> None:
    running = await process(tmp_path / "heard", "KubernetesExecutorBackend")
    async with draining(SparkDriver) as drain:
        executor(drain, "exec-1", running.pid, pre_stop=True)
        await drain.signal()
        assert drain.asked() == [("evict", "exec-1", 115)]
        assert await heard(tmp_path / "heard") == "decommissioned"
    running.kill()
    await running.wait()


async def test_what_does_not_understand_is_evicted_and_never_signalled(tmp_path: Path) -> None:
    deaf = await process(tmp_path / "heard", "KubernetesExecutorBackend", "does-not")
    sidecar = await process(tmp_path / "heard", "some-sidecar")
    async with draining(SparkDriver) as drain:
        for name, running in (("exec-1", deaf), ("exec-2", sidecar)):
            executor(drain, name, running.pid)
        await drain.signal()
        assert drain.asked() == [("evict", "exec-1", 115), ("evict", "exec-2", 115)]
    assert not (tmp_path / "heard").exists()
    for running in (deaf, sidecar):
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == -signal.SIGTERM


async def test_a_driver_goes_after_the_executors_beside_it() -> None:
    async with draining(SparkDriver) as drain:
        drain.cluster.add_pod("driver", NODE, labels=DRIVER)
        drain.cluster.add_pod("other-driver", NODE, labels=DRIVER | {"spark-app-selector": "app-2"})
        drain.cluster.add_pod("service", NODE)
        drain.cluster.add_pod("exec-1", NODE, labels=EXECUTOR)
        drain.cluster.ends_after["exec-1"] = 1e6
        await drain.signal()
        assert [name for _, name, _ in drain.asked()] == ["exec-1", "other-driver", "service"]
        drain.cluster.finish_pod("default", "exec-1")
        await drain.wait_drained()
        assert ("evict", "driver", 115) in drain.asked()


async def test_a_driver_does_not_wait_beyond_its_own_grace() -> None:
    async with draining(SparkDriver) as drain:
        drain.cluster.add_pod("driver", NODE, labels=DRIVER, grace_seconds=40)
        drain.cluster.add_pod("exec-1", NODE, labels=EXECUTOR)
        drain.cluster.ends_after["exec-1"] = 1e6
        await drain.signal()
        drain.deadline.seconds = 43.0
        await drain.wait_until(lambda: ("evict", "driver", 40) in drain.asked())


def test_a_process_that_is_gone_understands_nothing() -> None:
    assert not decommissions(Process(4194304, 0))

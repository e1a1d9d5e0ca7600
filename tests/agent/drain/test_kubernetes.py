"""Draining a node of Kubernetes: which pods are told, how long they get, and what a bad API cannot do."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from agent.drain import kubernetes
from agent.drain.executor import SIGNAL_LIMIT_SECONDS
from agent.drain.kube_api import KubeAccess, KubeApi
from agent.drain.kube_local import KubeletShutdown
from agent.drain.kubernetes import KubernetesDriver
from agent.drain.ports import OffersLocal, SchedulerUnreachable
from lab.schedulers.kube_faults import Fault, Lie
from tests.agent.drain.cluster import NODE, OWNER, UNTIL, Deadline, draining, orders

EVICTION = r"POST .*/eviction"
DELETION = r"DELETE /api/v1/namespaces/.*/pods/"
GIVEN_UP_SECONDS = kubernetes.SIGNAL_SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine an API that is well may take more than the second that an agent gives it."""
    monkeypatch.setattr(kubernetes, "SIGNAL_SECONDS", 5.0)


async def test_pods_are_evicted_with_the_budget_as_grace_until_none_is_left() -> None:
    async with draining() as drain:
        for name in ("a", "b"):
            drain.cluster.add_pod(name, NODE)
        drain.cluster.add_pod("elsewhere", "n2")
        await drain.signal(budget=90)
        assert drain.asked() == [("evict", "a", 90), ("evict", "b", 90)]
        assert await drain.left() == ["default/a", "default/b"]
        await drain.wait_drained()
        assert drain.asked() == [("evict", "a", 90), ("evict", "b", 90)]
        assert drain.cluster.store.find("pods", ("default", "elsewhere"))


async def test_daemons_static_and_finished_pods_are_neither_told_nor_waited_for() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("daemon", NODE, owner="DaemonSet")
        drain.cluster.add_pod("mirror", NODE, annotations={"kubernetes.io/config.mirror": "x"}, owner="Node")
        drain.cluster.add_pod("static", NODE, annotations={"kubernetes.io/config.source": "file"})
        drain.cluster.add_pod("done", NODE, phase="Succeeded")
        drain.cluster.add_pod("failed", NODE, phase="Failed")
        drain.cluster.add_pod("work", NODE, owner="ReplicaSet")
        await drain.signal()
        assert drain.asked() == [("evict", "work", 115)]
        await drain.wait_drained()


async def test_a_late_drain_gives_what_is_left_and_never_a_negative_grace() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.deadline.seconds = -7.0
        await drain.signal()
        assert drain.asked() == [("evict", "a", 1)]


async def test_a_budget_blocks_until_the_pods_own_grace_has_to_begin() -> None:
    async with draining() as drain:
        drain.cluster.budgets["guarded"] = 0
        drain.cluster.add_pod("a", NODE, labels={"app": "guarded"}, grace_seconds=30)
        await drain.signal()
        assert await drain.left() == ["default/a"]
        drain.deadline.seconds, drain.clock.seconds = 33.5, 80.0
        assert await drain.left() == ["default/a"]
        assert drain.asked() == []
        drain.deadline.seconds, drain.clock.seconds = 33.0, 82.0
        await drain.left()
        assert drain.asked() == [("delete", "a", 30)]
        await drain.wait_drained()


async def test_a_budget_that_allows_it_meanwhile_is_honoured() -> None:
    async with draining() as drain:
        drain.cluster.budgets["guarded"] = 1
        for name in ("a", "b"):
            drain.cluster.add_pod(name, NODE, labels={"app": "guarded"})
        await drain.signal()
        assert len(drain.asked("evict")) == 1
        drain.cluster.budgets["guarded"] = 1
        await drain.wait_drained()
        assert [verb for verb, *_ in drain.asked()] == ["evict", "evict"]
        assert drain.cluster.budgets["guarded"] == 0


async def test_budgets_that_contradict_each_other_do_not_stop_a_drain_at_the_edge() -> None:
    async with draining() as drain:
        drain.cluster.faults.add(Fault(EVICTION, code=500))
        drain.cluster.add_pod("a", NODE)
        drain.cluster.add_pod("b", NODE, grace_seconds=200)
        drain.deadline.seconds = 118.0
        await drain.signal()
        assert drain.asked() == [("delete", "b", 115)]
        drain.deadline.seconds, drain.clock.seconds = 20.0, 100.0
        await drain.left()
        assert drain.asked() == [("delete", "a", 17), ("delete", "b", 115)]


async def test_a_pod_that_someone_else_ends_too_late_gets_less_time() -> None:
    async with draining() as drain:
        for name, grace in (("soon", 20), ("late", 600)):
            drain.cluster.add_pod(name, NODE, grace_seconds=grace)
            drain.cluster.delete(("default", name), None)
        drain.cluster.asked.clear()
        await drain.signal(budget=60)
        assert drain.asked() == [("delete", "late", 60)]


async def test_an_eviction_that_was_only_said_is_asked_for_again_and_then_forced() -> None:
    async with draining() as drain:
        drain.cluster.faults.lies |= {Lie.EVICT}
        drain.cluster.add_pod("a", NODE)
        await drain.signal()
        drain.clock.seconds = 2.0
        assert await drain.left() == ["default/a"]
        assert [verb for verb, *_ in drain.asked()] == ["evict", "evict"]
        await drain.driver.force(await drain.driver.left())
        assert ("delete", "a", 1) in drain.asked()
        await drain.wait_drained()


async def test_a_list_that_leaves_pods_out_does_not_make_a_node_empty() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.ends_after["a"] = 1e6
        await drain.signal(budget=115)
        drain.cluster.faults.lies |= {Lie.LIST}
        for seconds in (1.0, 10.0, 20.0):
            drain.clock.seconds = seconds
            assert await drain.left() == ["default/a"]
        drain.cluster.finish_pod("default", "a")
        await drain.wait_drained()


async def test_a_pod_is_left_while_its_processes_run_whatever_the_api_says() -> None:
    async with draining() as drain:
        uid = drain.cluster.add_pod("a", NODE)["metadata"]["uid"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=-1)
        drain.processes[uid] = (process.pid,)
        await drain.signal()
        drain.cluster.finish_pod("default", "a")
        left = await drain.driver.left()
        assert [(work.name, work.pids) for work in left] == [("default/a", (process.pid,))]
        await drain.driver.force(left)
        assert await process.wait() == -signal.SIGKILL
        drain.processes.clear()
        assert await drain.left() == []


async def test_a_pod_that_was_replaced_under_its_name_is_not_touched() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("web-0", NODE)
        drain.cluster.ends_after["web-0"] = 0
        await drain.signal()
        work = [one for one in await drain.driver.left() if one.name == "default/web-0"]
        await drain.wait_drained()
        drain.cluster.add_pod("web-0", "n2")
        await drain.driver.force(work)
        assert drain.asked() == [("evict", "web-0", 115)]


async def test_a_pod_that_arrives_in_spite_of_the_taint_is_told_too() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.ends_after["a"] = 1e6
        await drain.signal()
        drain.cluster.add_pod("late", NODE)
        await drain.wait_until(lambda: ("evict", "late", 115) in drain.asked())


async def test_asking_often_lists_seldom_and_a_lost_watch_is_taken_up_again() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.ends_after["a"] = 1e6
        await drain.signal()
        drain.cluster.faults.add(Fault(r"GET /api/v1/pods", code=500))
        for _ in range(20):
            assert await drain.left() == ["default/a"]
        drain.cluster.faults.clear()
        drain.cluster.store.forget_changes()
        drain.cluster.finish_pod("default", "a")
        await drain.wait_drained()


@pytest.mark.parametrize("code", [401, 403, 500, 503])
async def test_an_api_that_answers_with_errors_is_unreachable(code: int) -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.faults.add(Fault("", code=code))
        with pytest.raises(SchedulerUnreachable, match=str(code)):
            await drain.driver.cordon(OWNER, UNTIL)
        with pytest.raises(SchedulerUnreachable):
            await drain.signal()


@pytest.mark.parametrize("code", [404, 410])
async def test_a_list_that_is_missing_or_expires_again_and_again_is_unreachable(code: int) -> None:
    async with draining() as drain:
        drain.cluster.faults.add(Fault("GET /api/v1/pods$", code=code))
        with pytest.raises(SchedulerUnreachable):
            await drain.signal()


async def test_a_list_that_expires_once_is_read_again() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.faults.add(Fault("GET /api/v1/pods$", code=410, times=1))
        await drain.signal()
        assert drain.asked() == [("evict", "a", 115)]


async def test_a_hung_api_is_given_up_within_its_limit() -> None:
    async with draining(call_seconds=0.3) as drain:
        drain.cluster.faults.add(Fault("", hang_seconds=60))
        began = time.monotonic()
        with pytest.raises(SchedulerUnreachable):
            await drain.driver.cordon(OWNER, UNTIL)
        assert time.monotonic() - began < 10


async def test_nothing_listens_and_that_is_unreachable() -> None:
    api = KubeApi(KubeAccess("http://127.0.0.1:9"))
    with pytest.raises(SchedulerUnreachable):
        await KubernetesDriver(api, NODE).cordon(OWNER, UNTIL)
    await api.close()


async def test_after_a_signal_that_failed_nothing_is_evicted_any_more() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.faults.add(Fault(EVICTION, code=503))
        with pytest.raises(SchedulerUnreachable):
            await drain.signal()
        drain.cluster.faults.clear()
        drain.clock.seconds = 100.0
        assert await drain.left() == ["default/a"]
        assert drain.asked() == []


async def test_one_pod_told_keeps_the_drain_with_the_api() -> None:
    async with draining() as drain:
        for name in ("a", "b"):
            drain.cluster.add_pod(name, NODE)
        drain.cluster.faults.add(Fault("b/eviction", code=503, times=1))
        await drain.signal()
        assert drain.asked() == [("evict", "a", 115)]
        drain.clock.seconds = 1.0
        await drain.left()
        assert set(drain.asked()) == {("evict", "a", 115), ("evict", "b", 115)}


async def test_without_the_api_the_kernel_tells_what_is_left() -> None:
    async with draining() as drain:
        uid = drain.cluster.add_pod("a", NODE)["metadata"]["uid"]
        drain.processes[uid] = (4194304,)
        await drain.signal()
        await drain.driver.finish(orders())
        drain.cluster.faults.add(Fault("", code=503))
        drain.clock.seconds = 2.0
        assert await drain.left() == ["default/a"]
        drain.processes.clear()
        with pytest.raises(SchedulerUnreachable):
            await drain.left()


async def test_without_the_api_a_node_is_empty_when_only_its_own_pods_run() -> None:
    """The API may be gone right after the evictions, and daemons never end."""
    async with draining() as drain:
        work = drain.cluster.add_pod("a", NODE)["metadata"]["uid"]
        daemon = drain.cluster.add_pod("daemon", NODE, owner="DaemonSet")["metadata"]["uid"]
        static = {"kubernetes.io/config.mirror": "0f" * 16}
        drain.cluster.add_pod("static", NODE, annotations=static, owner="Node")
        drain.processes |= {uid: (4194304,) for uid in (work, daemon, "0f" * 16)}
        await drain.signal()
        drain.cluster.faults.add(Fault("", code=503))
        drain.clock.seconds = 10.0
        assert await drain.left() == ["default/a"]
        del drain.processes[work]
        assert await drain.left() == []
        drain.processes["a pod that nobody told of"] = (4194304,)
        with pytest.raises(SchedulerUnreachable):
            await drain.left()


async def test_a_restart_goes_on_without_telling_pods_twice() -> None:
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.ends_after["a"] = 1e6
        await drain.signal()
        again = KubernetesDriver(drain.api, NODE, processes=lambda: {})
        await again.signal(orders(), drain.deadline)
        assert drain.asked() == [("evict", "a", 115)]
        await again.finish(orders())


async def test_another_node_is_out_of_reach_for_a_token_of_this_one(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("of-n2")
    async with draining(token_file=token) as drain:
        drain.cluster.tokens |= {"of-n1": NODE, "of-n2": "n2"}
        drain.cluster.add_pod("a", NODE)
        with pytest.raises(SchedulerUnreachable, match="403"):
            await drain.driver.cordon(OWNER, UNTIL)
        with pytest.raises(SchedulerUnreachable, match="403"):
            await drain.signal()
        token.write_text("of-n1")
        drain.cluster.tokens.pop("of-n2")
        await drain.driver.cordon(OWNER, UNTIL)
        await drain.signal()
        assert drain.asked() == [("evict", "a", 115)]


async def test_the_local_path_announces_a_shutdown_and_takes_it_back(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    command = ["sh", "-c", f'echo "$0" >> {heard}']
    shutdown = KubeletShutdown(lambda: {"u": (1, 2)}, command, tmp_path / "marker")
    async with draining(shutdown=shutdown) as drain:
        assert isinstance(drain.driver, OffersLocal)
        local = drain.driver.local()
        await local.uncordon(OWNER)
        assert not heard.exists()
        await local.cordon(OWNER, UNTIL)
        await local.signal(orders(), drain.deadline)
        assert [work.name for work in await local.left()] == ["u"]
        await KubeletShutdown(announce=command, marker=tmp_path / "marker").uncordon(OWNER)
        await local.uncordon(OWNER)
        assert heard.read_text().split() == ["boolean:true", "boolean:false"]


@pytest.mark.parametrize(
    ("command", "said"),
    [(["no-such-command"], "cannot run"), (["false"], "ended with 1"), (["sleep", "60"], "did not end")],
)
async def test_a_local_path_that_is_not_there_says_so(tmp_path: Path, command: list[str], said: str) -> None:
    announce = ["sh", "-c", "exec sleep 60"] if command[0] == "sleep" else command
    with pytest.raises(SchedulerUnreachable, match=said):
        await KubeletShutdown(lambda: {}, announce, tmp_path / "marker").signal(orders(), Deadline())


@pytest.mark.parametrize("first", [None, 429, 503])
@pytest.mark.parametrize("second", [None, 429, 503])
async def test_a_signal_that_failed_has_told_nobody(first: int | None, second: int | None) -> None:
    """Whoever falls back to the local path then is the only one to end these pods."""
    async with draining() as drain:
        for name, code in (("a", first), ("b", second)):
            drain.cluster.add_pod(name, NODE)
            if code is not None:
                drain.cluster.faults.add(Fault(f"{name}/eviction", code=code))
        told = [name for name, code in (("a", first), ("b", second)) if code is None]
        if 503 in (first, second) and not told:
            with pytest.raises(SchedulerUnreachable):
                await drain.signal()
            drain.cluster.faults.clear()
            drain.clock.seconds = 50.0
            await drain.left()
        else:
            await drain.signal()
        assert [name for _, name, _ in drain.asked()] == told


async def test_an_eviction_without_an_answer_is_given_up_before_the_caller_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert GIVEN_UP_SECONDS < SIGNAL_LIMIT_SECONDS
    monkeypatch.setattr(kubernetes, "SIGNAL_SECONDS", GIVEN_UP_SECONDS)
    async with draining() as drain:
        drain.cluster.add_pod("a", NODE)
        drain.cluster.faults.add(Fault(EVICTION, hang_seconds=60))
        began = time.monotonic()
        with pytest.raises(SchedulerUnreachable, match="in time"):
            await drain.signal()
        assert time.monotonic() - began < 10
        assert drain.asked() == []

"""What the agent costs a node: memory, idle processor time, and how long it takes to be ready.

It is started as its unit starts it, and everything that it talks to is talked to as in production: over TLS,
with all the authorities that a machine believes.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lab.schedulers.kube_cluster import Cluster
from lab.schedulers.kube_server import serve
from lab.stack.ports import any_free
from tests.agent.certificates import Authority
from tests.agent.rig import HALL, PATIENT_WITH_KUBERNETES, Node, Relay, letter, node, notice, until
from tests.agent.test_service import unit
from tests.deploy.forwarder_session import forwarding
from wire.bus_credentials import agent_token, credentials, issuer_of, new_bus, new_key

# 60 MB is 57.2 MiB. Measured, at the highest moment: 52.7 on plain nodes, 53.7 on those of Slurm, and 54.7 on
# one of Kubernetes that is full of pods.
MOST_MIB = 56.0
# A share of one processor, seen over seconds on a machine that does other things too.
MOST_IDLE = 0.03
LOOK_SECONDS = 1.5
READY_SECONDS = 3.0
PODS = 110
# Such as real pods carry, which are some ten thousand bytes each.
ENVIRONMENT = [{"name": f"NAME_{number}", "value": "x" * 40} for number in range(60)]
FIELDS: dict[str, Any] = {
    f'k:{{"name":"NAME_{number}"}}': {".": {}, "f:name": {}, "f:value": {}} for number in range(60)
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Relay]:
    one = Relay(tmp_path_factory.mktemp("bus"), authority)
    yield one
    one.stop()


def peak_mib(one: Node) -> float:
    """The most memory that the process ever held."""
    assert one.process is not None
    status = Path(f"/proc/{one.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def processor_seconds(one: Node) -> float:
    assert one.process is not None
    fields = Path(f"/proc/{one.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_share(one: Node) -> float:
    """The share of one processor that it takes while nothing happens, once its start is over."""
    before = processor_seconds(one)
    time.sleep(LOOK_SECONDS)
    return (processor_seconds(one) - before) / LOOK_SECONDS


def entry_of(instance_id: str) -> str:
    keys, own, now = new_bus(os.urandom), new_key("U", os.urandom), datetime.now(UTC)
    token = agent_token(
        issuer_of(keys),
        user=own.public,
        hall=HALL,
        instance_id=instance_id,
        now=now,
        expires_at=now + timedelta(days=1),
    )
    return credentials(token, own.seed)


def start_as_installed(one: Node, bus: Relay, authority: Authority, prelude: str = "") -> None:
    """With the unit's environment and a node's intervals; twice, so that the bytecode is there."""
    one.state.mkdir(exist_ok=True)
    (one.state / "bus.creds").write_text(entry_of(one.instance_id))
    one.settings |= dict(line.split("=", 1) for line in unit()["Service.Environment"]) | {
        "SCO_AGENT_BUS_SERVERS": bus.url,
        "SCO_AGENT_POLL_SECONDS": "5",
        "SCO_AGENT_METRICS_PORT": str(any_free({})),
        "SSL_CERT_FILE": str(authority.trusted_file),
    }
    one.start(prelude=prelude)
    one.stop()
    one.start(prelude=prelude)
    until(lambda: any(sign == "STATUS=ready" for sign in one.signs()))


def weighed_in_a_drain(one: Node, bus: Relay) -> float:
    bus.say(one.instance_id, letter(notice(one.instance_id)))
    until(lambda: one.phase() == "finished")
    with urllib.request.urlopen(f"http://127.0.0.1:{one.settings['SCO_AGENT_METRICS_PORT']}/metrics") as page:
        assert b"sco_agent_drains_total" in page.read()
    return peak_mib(one)


def test_the_agent_is_light_and_still_while_it_waits(
    tmp_path: Path, bus: Relay, authority: Authority
) -> None:
    with node(tmp_path / "n") as one:
        one.work("checkpoints")
        start_as_installed(one, bus, authority)
        assert processor_seconds(one) <= READY_SECONDS
        until(lambda: idle_share(one) <= MOST_IDLE)
        assert weighed_in_a_drain(one, bus) <= MOST_MIB


def test_the_agent_of_a_slurm_node_is_light_too(tmp_path: Path, bus: Relay, authority: Authority) -> None:
    file = str(authority.server_file)
    (tmp_path / "forwarder").mkdir()
    with (
        forwarding(tmp_path / "forwarder", "--tls-certificate", file, "--tls-key", file) as session,
        node(tmp_path / "n", instance_id="i-n1", path="slurm") as one,
    ):
        key = session.keys["n1"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        one.state.mkdir()
        (one.state / "key.pem").write_bytes(key)
        one.settings |= {
            "SCO_AGENT_SLURM_URL": session.url.replace("http://", "https://"),
            "SCO_AGENT_SLURM_CA_FILE": str(authority.ca_file),
            "SCO_AGENT_NODE_NAME": "n1",
        }
        start_as_installed(one, bus, authority)
        assert weighed_in_a_drain(one, bus) <= MOST_MIB
        assert {record["order"] for record in session.audit()} >= {"/v1/drain", "/v1/jobs"}


def full_cluster() -> Cluster:
    """A node with as many pods as a kubelet takes, each as large as real ones are."""
    cluster = Cluster(0.002)
    cluster.add_node("n1")
    for number in range(PODS):
        labels = {"spark-role": "executor", "spark-app-selector": "a"}
        body = cluster.add_pod(f"p{number}", "n1", labels=labels)
        body["metadata"]["managedFields"] = [{"manager": "kubelet", "fieldsV1": FIELDS}]
        body["spec"]["containers"][0]["env"] = ENVIRONMENT
        cluster.store.replace("pods", ("default", f"p{number}"), body)
    return cluster


@pytest.mark.parametrize("path", ["kubernetes", "spark"])
async def test_the_agent_of_a_kubernetes_node_is_light_too(
    tmp_path: Path, bus: Relay, authority: Authority, path: str
) -> None:
    cluster = full_cluster()
    (tmp_path / "token").write_text("of-n1")
    cluster.tokens["of-n1"] = "n1"

    def drained(address: str) -> float:
        with node(tmp_path / "n", path=path) as one:
            one.settings |= {
                "SCO_AGENT_KUBERNETES_URL": address,
                "SCO_AGENT_KUBERNETES_CA_FILE": str(authority.ca_file),
                "SCO_AGENT_KUBERNETES_TOKEN_FILE": str(tmp_path / "token"),
                "SCO_AGENT_NODE_NAME": "n1",
            }
            start_as_installed(one, bus, authority, PATIENT_WITH_KUBERNETES)
            return weighed_in_a_drain(one, bus)

    async with serve(cluster, authority.server_file) as address:
        peak = await asyncio.to_thread(drained, address)
    # A busy machine answers some of them too late, and those are asked again.
    assert {(verb, pod) for verb, pod, _ in cluster.asked} == {
        ("evict", f"p{number}") for number in range(PODS)
    }
    assert peak <= MOST_MIB

"""The gRPC server as a process: why it will not start, and that it serves, speaks TLS and ends when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lab.issuer import IssuerHandle
from store.engine import Engine
from tests.activities.model_placing import ServingEstate
from tests.api.grpc.door import asked, report, tenant_login, until
from tests.estates import Clock
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

ROOT = Path(__file__).parents[3]
PATIENCE_SECONDS = 60
TENANT = "tenant-a"
NOWHERE = "postgresql://u:hidden@127.0.0.1:9/x"


def environment(**settings: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SCO_")}
    given = {"SCO_OIDC_ISSUER": "http://127.0.0.1:9", "SCO_OIDC_AUDIENCE": "sco-api", "SCO_GRPC_PORT": "0"}
    return clean | given | settings


def refused(code: int, **settings: str) -> str:
    """What the process says when it does not start."""
    ended = subprocess.run(
        [sys.executable, "-m", "api.grpc.main"],
        env=environment(**settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hidden" not in ended.stderr
    return ended.stderr


def test_it_names_every_setting_that_is_wrong() -> None:
    told = refused(2, SCO_GRPC_PORT="80800", SCO_OIDC_AUDIENCE="")
    assert "SCO_DATABASE_URL: is not set" in told
    assert "SCO_GRPC_PORT" in told
    assert "SCO_OIDC_AUDIENCE" in told


def test_without_tls_it_listens_on_loopback_only() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.com"):
        told = refused(2, SCO_DATABASE_URL=NOWHERE, SCO_GRPC_HOST=host)
        assert "SCO_GRPC_TLS_CERT" in told, host


def test_half_of_tls_is_none(tmp_path: Path) -> None:
    told = refused(2, SCO_DATABASE_URL=NOWHERE, SCO_GRPC_TLS_CERT=str(tmp_path / "cert.pem"))
    assert "go together" in told


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    settings = {"SCO_GRPC_TLS_CERT": str(cert), "SCO_GRPC_TLS_KEY": str(key)}
    assert "no readable pair" in refused(2, SCO_DATABASE_URL=NOWHERE, **settings)
    write_certificate(cert, key)
    write_certificate(tmp_path / "other.pem", key)
    assert "no readable pair" in refused(2, SCO_DATABASE_URL=NOWHERE, **settings)


def test_a_login_that_sees_everybodys_rows_is_refused(dsn: str) -> None:
    assert "superuser" in refused(2, SCO_DATABASE_URL=dsn)


def test_an_address_that_is_taken_is_told(dsn: str) -> None:
    with tenant_login(dsn) as own, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot listen" in refused(1, SCO_DATABASE_URL=own, SCO_GRPC_PORT=port)


def test_policy_and_secrets_files_are_checked(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("model_placement: {hold_seconds: soon}")
    for name in ("SCO_POLICY_FILE", "SCO_SECRETS_FILE"):
        assert name in refused(2, SCO_DATABASE_URL=NOWHERE, **{name: str(wrong)})


@dataclass
class Running:
    """A process that serves on `port`."""

    process: subprocess.Popen[str]
    port: int
    lines: list[dict[str, Any]]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def serving(**settings: str) -> Iterator[Running]:
    """A served process; it must end well at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "api.grpc.main"],
        env=environment(**settings),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(process, 0, [])
    try:
        assert process.stderr is not None
        for line in process.stderr:
            running.lines.append(json.loads(line))
            if running.lines[-1]["event"] == "serving":
                running.port = running.lines[-1]["port"]
                break
        assert running.port, running.lines
        yield running
    finally:
        running.stop()
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, rest
    running.lines += [json.loads(line) for line in rest.splitlines()]


@pytest.fixture
def issuer() -> Iterator[IssuerHandle]:
    with IssuerHandle.start_in_thread() as running:
        yield running


@pytest.fixture
def own_dsn(dsn: str) -> Iterator[str]:
    with tenant_login(dsn) as own:
        yield own


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def test_it_serves_whom_the_issuer_knows_and_answers_open_streams_when_it_ends(
    engine: Engine, own_dsn: str, issuer: IssuerHandle
) -> None:
    pools = ServingEstate(engine, engine, Clock(datetime.now(UTC)))
    await pools.pool("gpu-1", TENANT)
    await pools.pool("theirs", "tenant-b")
    token = issuer.issuer.token_for("tenant-a-router")
    signed = bearer(token)
    metrics_port = free_port()
    settings = {
        "SCO_DATABASE_URL": own_dsn,
        "SCO_OIDC_ISSUER": issuer.url,
        "SCO_GRPC_METRICS_PORT": str(metrics_port),
    }
    with serving(**settings) as running:
        async with grpc.aio.insecure_channel(running.address) as channel:
            calls = ComputePoolsStub(channel)
            health: Any = health_pb2_grpc.HealthStub(channel)
            told = await health.Check(health_pb2.HealthCheckRequest(), timeout=20)
            assert told.status == health_pb2.HealthCheckResponse.SERVING
            placed = await calls.Place(asked(), metadata=signed, timeout=20)
            assert placed.outcome == pb.PLACEMENT_OUTCOME_PLACED
            assert [one.pool.pool_id for one in placed.candidates] == ["gpu-1"]
            stream = calls.ReportUtilization(metadata=signed)
            await stream.write(report(utilization="0.7"))

            async def arrived() -> bool:
                return await pools.run("SELECT 1 FROM pool_capacity WHERE utilization = 0.7") != []

            await until(arrived)
            async with httpx2.AsyncClient(trust_env=False) as http:
                shown = (await http.get(f"http://127.0.0.1:{metrics_port}/metrics")).text
            assert 'sco_grpc_requests_total{code="OK",method="Place"} 1.0' in shown
            assert 'sco_pool_reports_total{outcome="written"} 1.0' in shown
            running.stop()
            answer = await stream
            assert (answer.accepted, answer.ended_by) == (1, pb.STREAM_END_SERVER_STOPS)
    events = [line["event"] for line in running.lines]
    assert {"serving", "health", "model_placed", "stopped"} <= set(events)
    assert token not in str(running.lines)
    assert "grpc:grpc" not in str(running.lines)


def test_it_waits_for_a_database_that_is_away_and_ends_when_asked() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "api.grpc.main"],
        env=environment(SCO_DATABASE_URL=NOWHERE),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["event"] == "database_unreachable"
    finally:
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, rest
    assert "hidden" not in rest


async def test_tls_is_spoken_and_nothing_else(
    engine: Engine, own_dsn: str, issuer: IssuerHandle, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(cert, key)
    settings = {
        "SCO_DATABASE_URL": own_dsn,
        "SCO_OIDC_ISSUER": issuer.url,
        "SCO_GRPC_TLS_CERT": str(cert),
        "SCO_GRPC_TLS_KEY": str(key),
    }
    signed = bearer(issuer.issuer.token_for("tenant-a-router"))
    with serving(**settings) as running:
        trusted = grpc.ssl_channel_credentials(cert.read_bytes())
        address = f"localhost:{running.port}"
        async with grpc.aio.secure_channel(address, trusted) as channel:
            answer = await ComputePoolsStub(channel).Place(asked(), metadata=signed, timeout=20)
            assert answer.outcome == pb.PLACEMENT_OUTCOME_POLICY_DENIED
        for channel in (
            grpc.aio.insecure_channel(address),
            grpc.aio.secure_channel(address, grpc.ssl_channel_credentials()),
        ):
            async with channel:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await ComputePoolsStub(channel).Place(asked(), metadata=signed, timeout=20)
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_another_port_of_the_same_number_is_not_shared(own_dsn: str) -> None:
    """Two servers on one port would each get half of the calls."""
    with serving(SCO_DATABASE_URL=own_dsn) as running:
        told = await asyncio.to_thread(refused, 1, SCO_DATABASE_URL=own_dsn, SCO_GRPC_PORT=str(running.port))
        assert "cannot listen" in told


def write_certificate(cert: Path, key: Path) -> None:
    """A self-signed certificate for localhost and its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )

"""The gRPC server as a process: why it will not start, and that it serves, speaks TLS and ends when asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
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
from pydantic import ValidationError

from activities.starting import told
from api.grpc.settings import GrpcSettings, TlsRefused
from lab.issuer import IssuerHandle
from lab.stack.ports import any_free
from store.engine import Engine
from tests.activities.model_placing import ServingEstate
from tests.api.grpc.door import asked, report, until
from tests.api.grpc.processes import COMMAND, PATIENCE_SECONDS, ROOT, environment, serving
from tests.estates import Clock
from wire.proto import control_pb2 as pb
from wire.proto.control_pb2_grpc import ComputePoolsStub

TENANT = "tenant-a"
NOWHERE = "postgresql://u:hidden@127.0.0.1:9/x"


def refused(code: int, **settings: str) -> str:
    """What the process says when it does not start."""
    ended = subprocess.run(
        COMMAND,
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


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings that are enough, and none in the environment."""
    for name in [name for name in os.environ if name.startswith("SCO_")]:
        monkeypatch.delenv(name)
    return {"database_url": NOWHERE, "oidc_issuer": "http://127.0.0.1:9", "oidc_audience": "sco-api"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com"])
def test_without_tls_it_listens_on_loopback_only(clean: dict[str, Any], host: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as wrong:
        GrpcSettings(**clean, grpc_host=host)
    (told_,) = told(wrong.value)
    assert "SCO_GRPC_TLS_CERT" in told_
    tls: dict[str, Any] = {"grpc_tls_cert": tmp_path / "cert.pem", "grpc_tls_key": tmp_path / "key.pem"}
    assert GrpcSettings(**clean, grpc_host=host, **tls).grpc_host == host


def test_half_of_tls_is_none(clean: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="go together"):
        GrpcSettings(**clean, grpc_tls_cert=tmp_path / "cert.pem")


def test_a_certificate_that_is_none_is_refused(clean: dict[str, Any], tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    settings = GrpcSettings(**clean, grpc_tls_cert=cert, grpc_tls_key=key)
    with pytest.raises(TlsRefused, match="no readable pair"):
        settings.credentials()
    write_certificate(cert, key)
    assert settings.credentials() is not None
    write_certificate(tmp_path / "other.pem", key)
    with pytest.raises(TlsRefused, match="no readable pair"):
        settings.credentials()


def test_an_address_has_a_port_behind_any_host(clean: dict[str, Any]) -> None:
    assert GrpcSettings(**clean).address == "127.0.0.1:8081"
    assert GrpcSettings(**clean, grpc_host="::1").address == "[::1]:8081"


def test_files_that_are_wrong_refuse_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("model_placement: {hold_seconds: soon}")
    assert "SCO_POLICY_FILE" in refused(2, SCO_DATABASE_URL=NOWHERE, SCO_POLICY_FILE=str(wrong))
    tls = {"SCO_GRPC_TLS_CERT": str(wrong), "SCO_GRPC_TLS_KEY": str(wrong)}
    assert "SCO_GRPC_TLS_CERT" in refused(2, SCO_DATABASE_URL=NOWHERE, **tls)


def test_a_login_that_sees_everybodys_rows_is_refused(dsn: str) -> None:
    assert "superuser" in refused(2, SCO_DATABASE_URL=dsn)


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
    metrics_port = any_free({})
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
            # Two servers on one port would each get half of the calls.
            second = await asyncio.to_thread(
                refused, 1, SCO_DATABASE_URL=own_dsn, SCO_GRPC_PORT=str(running.port)
            )
            assert "cannot listen" in second
            running.stop()
            answer = await stream
            assert (answer.accepted, answer.ended_by) == (1, pb.STREAM_END_SERVER_STOPS)
    events = [line["event"] for line in running.lines]
    assert {"serving", "health", "model_placed", "stopped"} <= set(events)
    assert token not in str(running.lines)
    assert "grpc:grpc" not in str(running.lines)


def test_it_waits_for_a_database_that_is_away_and_ends_when_asked() -> None:
    process = subprocess.Popen(
        COMMAND,
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

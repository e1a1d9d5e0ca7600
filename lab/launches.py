"""How each process of a laboratory is started: command, settings, and where it answers once it serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab.issuer.accounts import SCREENS, secret_file
from lab.issuer.issuer import AUDIENCE
from lab.logins import API_LOGIN, WORKER_LOGIN, dsn_of
from lab.seed import PARTITIONS
from lab.serving import SERVED, Plan, PlannedPool
from lab.stack.state import SECRETS as SECRETS_FOLDER
from lab.stack.state import create_password

if TYPE_CHECKING:
    from lab.control_plane import ControlPlane

SESSION_KEY = "session-key"
CLI_CLIENT = "sco-cli"
POLICY_FILE = "policy.json"
PLAN_FILE = "models.json"
WELL_KNOWN = "/.well-known/openid-configuration"
LOOPBACK = "127.0.0.1"


class Launch(NamedTuple):
    """`ready` is an address that answers 200, or a file that is there, once the process serves."""

    command: list[str]
    environment: dict[str, str]
    ready: str | Path


def of(plane: ControlPlane, name: str) -> Launch:
    """How the process of this name is started."""
    return LAUNCHES[name](plane)


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def _cloud(plane: ControlPlane) -> Launch:
    command = _python(
        "lab.cloud",
        *("--port", str(plane.port("cloud")), "--data-dir", str(plane.data_dir / "cloud")),
        *("--speed", str(plane.pace.cloud_speed), "--nats-url", plane.stack.nats_url),
    )
    return Launch(command, {}, f"{plane.cloud_url}/identity/v3")


def _models(plane: ControlPlane) -> Launch:
    plan = Plan(
        nats_url=plane.stack.nats_url,
        pools=tuple(
            PlannedPool(
                pool_id=pool.pool_id,
                port=plane.port(pool.pool_id),
                vram_gb=pool.vram_gb,
                seconds_per_gb=pool.seconds_per_gb,
                token_file=_token_file(plane, pool.pool_id),
            )
            for pool in SERVED
        ),
    )
    for pool in SERVED:
        endpoint_token(plane, pool.pool_id)
    path = plane.data_dir / PLAN_FILE
    path.write_text(plan.model_dump_json(indent=2) + "\n")
    first = plane.port(SERVED[0].pool_id)
    return Launch(_python("lab.serving", "--plan", str(path)), {}, f"http://{LOOPBACK}:{first}/admin/state")


def _token_file(plane: ControlPlane, pool_id: str) -> Path:
    return plane.data_dir / SECRETS_FOLDER / f"endpoint-{pool_id}"


def endpoint_token(plane: ControlPlane, pool_id: str) -> str:
    """The credential of one pool's endpoint, made once for a data folder."""
    return create_password(plane.data_dir, _token_file(plane, pool_id).name)


def endpoint_of(plane: ControlPlane, pool_id: str) -> str:
    """The reference under which a pool's endpoint is registered."""
    return f"ollama+http://{LOOPBACK}:{plane.port(pool_id)}"


def worker_environment(plane: ControlPlane) -> dict[str, str]:
    regions = sorted(json.loads(plane.provider_file.read_text())["regions"])
    told = _store(plane, WORKER_LOGIN) | plane.relay.history_environment()
    return told | {
        "SCO_NATS_URL": plane.stack.nats_url,
        "SCO_PARTITIONS": ",".join(sorted(PARTITIONS)),
        "SCO_REGIONS": ",".join(regions),
        "SCO_NODE_FILE": str(plane.relay.node_file(plane.api_url)),
        "SCO_CLOUD_FILE": str(plane.provider_file),
        "SCO_METRICS_PORT": str(plane.port("worker")),
        "SCO_POLL_SECONDS": str(plane.pace.poll_seconds),
        "SCO_PROVIDER_CALLS_PER_SECOND": str(plane.pace.provider_calls_per_second),
        "SCO_PROVIDER_BURST": str(2 * plane.pace.provider_calls_per_second),
        "SCO_COLLECTOR_SECONDS": str(plane.pace.collector_seconds),
        "SCO_POOL_PROBE_SECONDS": str(plane.pace.probe_seconds),
    }


def _relay(plane: ControlPlane) -> Launch:
    return Launch(plane.relay.command(plane.api_url, plane.cloud_file), {}, plane.relay.ready_file)


def _worker(plane: ControlPlane) -> Launch:
    return Launch(_python("workers.main"), worker_environment(plane), plane.metrics_url)


def _store(plane: ControlPlane, login: str) -> dict[str, str]:
    return {
        "SCO_DATABASE_URL": dsn_of(login, plane.stack.postgres_dsn, plane.data_dir),
        "SCO_TEMPORAL_ADDRESS": plane.stack.temporal_address,
        "SCO_TEMPORAL_NAMESPACE": plane.stack.temporal_namespace,
        "SCO_POLICY_FILE": str(_write_policy_file(plane)),
        "SCO_SECRETS_FILE": str(plane.secrets_file),
    }


def _write_policy_file(plane: ControlPlane) -> Path:
    """The patience of a laboratory, as an operator would write it down."""
    pace = plane.pace
    policy = {
        "placement": {"backoff_seconds": pace.backoff_seconds},
        "acquisition": {
            "settle_seconds": pace.settle_seconds,
            "build_patience_seconds": pace.build_patience_seconds,
        },
        "reconcile": {
            "cycle_seconds": pace.cycle_seconds,
            "recovery_cycle_seconds": pace.recovery_cycle_seconds,
            "lapse_seconds": pace.lapse_seconds,
            "pace_window_seconds": pace.pace_window_seconds,
        },
        "warm_keep": {"look_seconds": pace.warm_keep_seconds},
        "endpoints": {
            "networks": [f"{LOOPBACK}/32"],
            "plain_http": True,
            "ports": [plane.port(pool.pool_id) for pool in SERVED],
        },
    }
    path = plane.data_dir / POLICY_FILE
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(policy, indent=2) + "\n")
    fresh.replace(path)
    return path


def _issuer(plane: ControlPlane) -> Launch:
    command = _python("lab.issuer", "--port", str(plane.port("issuer")), "--data-dir", str(plane.issuer_dir))
    return Launch(command, {}, f"{plane.issuer_url}{WELL_KNOWN}")


def _trust(plane: ControlPlane) -> dict[str, str]:
    return {"SCO_OIDC_ISSUER": plane.issuer_url, "SCO_OIDC_AUDIENCE": AUDIENCE}


def _api(plane: ControlPlane) -> Launch:
    environment = {
        "SCO_API_HOST": LOOPBACK,
        "SCO_API_PORT": str(plane.port("api")),
        "SCO_API_METRICS_PORT": str(plane.port("api-metrics")),
        "SCO_TEMPORAL_UI_URL": plane.stack.web_ui_url,
        "SCO_OIDC_CLIENT_ID": SCREENS,
        "SCO_OIDC_CLIENT_SECRET": secret_file(plane.issuer_dir, SCREENS).read_text(),
        "SCO_SESSION_KEY": create_password(plane.data_dir, SESSION_KEY),
        "SCO_NODE_FILE": str(plane.relay.node_file(plane.api_url)),
    }
    return Launch(
        _python("api.main"),
        _store(plane, API_LOGIN) | _trust(plane) | environment,
        f"{plane.api_url}/readyz",
    )


def _grpc(plane: ControlPlane) -> Launch:
    metrics = plane.port("grpc-metrics")
    environment = {"SCO_GRPC_PORT": str(plane.port("grpc")), "SCO_GRPC_METRICS_PORT": str(metrics)}
    return Launch(
        _python("api.grpc.main"),
        _store(plane, API_LOGIN) | _trust(plane) | environment,
        f"http://{LOOPBACK}:{metrics}/metrics",
    )


LAUNCHES: dict[str, Callable[[ControlPlane], Launch]] = {
    "cloud": _cloud,
    "models": _models,
    "relay": _relay,
    "worker": _worker,
    "issuer": _issuer,
    "api": _api,
    "grpc": _grpc,
}


def cli_environment(plane: ControlPlane, client: str = CLI_CLIENT) -> dict[str, str]:
    """What `sco` is told, so that it finds the API and fetches tokens for a client of the issuer."""
    return {
        "SCO_SERVER": plane.api_url,
        "SCO_CLIENT_ID": client,
        "SCO_CLIENT_SECRET_FILE": str(secret_file(plane.issuer_dir, client).absolute()),
        "SCO_TOKEN_URL": f"{plane.issuer_url}/token",
    }

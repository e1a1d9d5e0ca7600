"""A hall is taken back at once: how long until every instance has heard, of the relay's decision on."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import nats
import orjson
import uvloop
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from lab.bench.report import Figure, percentile
from lab.relay.admission import write_private
from lab.relay.bus import NodeBus
from lab.relay.decisions import Decision
from lab.relay.keys import write_new_key
from lab.relay.server import RelaySettings, RunningRelay
from lab.stack.nats import taken_in
from wire.bus_credentials import Permissions, credentials, issuer_of, new_key, user_token
from wire.node import notice_subject

INSTANCES = 5_000
CONNECTIONS = 50
ROUNDS = 3
HALL = "eu-north-1a"
GIVE_UP_SECONDS = 60.0
READY = b"ready\n"


def measure() -> list[Figure]:
    """One bus, one relay with its HTTP door and journal, and a process that listens for all instances."""
    with tempfile.TemporaryDirectory(prefix="sco-bench-relay-") as name:
        folder = Path(name)
        write_new_key(folder / "key.pem", "relay-1")
        with NodeBus(folder / "bus") as bus:
            settings = RelaySettings(
                bus=(bus.url,),
                bus_credentials=bus.admission.relay_file(),
                key_file=folder / "key.pem",
                key_id="relay-1",
                token_file=write_private(folder / "token", secrets.token_urlsafe()),
                journal=folder / "journal",
            )
            rounds = [uvloop.run(_round(settings, bus, number)) for number in range(ROUNDS)]
    worst = max(rounds, key=lambda heard: percentile(heard, 0.99))
    p50, p99, last = (percentile(worst, share) * 1000 for share in (0.5, 0.99, 1.0))
    return [
        Figure(
            name=f"relay_fanout_{INSTANCES}_p99_ms",
            value=p99,
            unit="ms",
            target="<= 1000",
            method=(
                f"one decision takes back {INSTANCES:,} instances; until each has its signed letter,"
                f" signing included; one NATS, {CONNECTIONS} connections of another process; the worst of"
                f" {ROUNDS} rounds; p50 {p50:.0f} ms, last {last:.0f} ms"
            ),
        )
    ]


async def _round(settings: RelaySettings, bus: NodeBus, number: int) -> list[float]:
    """Seconds until each instance had heard. Instances are others in each round."""
    credentials_file = write_private(settings.journal.parent / "ears.creds", _ears(bus))
    command = [sys.executable, "-m", "lab.bench.relay_fanout", "--bus", bus.url, "--round", str(number)]
    command += ["--instances", str(INSTANCES), "--connections", str(CONNECTIONS)]
    async with RunningRelay(settings).serving() as running:
        listener = await asyncio.create_subprocess_exec(
            *command, "--credentials", str(credentials_file), stdout=subprocess.PIPE, limit=2**24
        )
        try:
            assert listener.stdout is not None
            async with asyncio.timeout(GIVE_UP_SECONDS):
                if await listener.stdout.readline() != READY:
                    raise RuntimeError("the listening process did not start")
                decided = time.monotonic_ns()
                await running.relay.decide(
                    [Decision(instance_id=one, hall=HALL) for one in _instances(number, INSTANCES)]
                )
                heard = orjson.loads(await listener.stdout.readline())
        finally:
            if listener.returncode is None:
                listener.terminate()
            await listener.wait()
    return [(one - decided) / 1e9 for one in heard]


def _instances(number: int, count: int) -> list[str]:
    return [f"i-{number}-{index}" for index in range(count)]


def _ears(bus: NodeBus) -> str:
    """Credentials that hear every notice: a real agent hears its own alone."""
    own = new_key("U", secrets.token_bytes)
    jwt = user_token(
        issuer_of(bus.admission.keys),
        user=own.public,
        name="ears",
        may=Permissions(publish=(), subscribe=("notices.>",)),
        now=datetime.now(UTC),
        expires_at=None,
    )
    return credentials(jwt, own.seed)


async def listen(url: str, credentials_file: Path, instances: Sequence[str], connections: int) -> list[int]:
    """When each instance first heard, in nanoseconds of the steady clock that all processes share."""
    heard: dict[str, int] = {}
    everybody = asyncio.Event()

    async def hear(message: Msg) -> None:
        heard.setdefault(message.subject, time.monotonic_ns())
        if len(heard) == len(instances):
            everybody.set()

    clients: list[NatsClient] = []
    for number in range(connections):
        client = await nats.connect(url, user_credentials=str(credentials_file))
        clients.append(client)
        for instance_id in instances[number::connections]:
            await client.subscribe(notice_subject(HALL, instance_id), cb=hear)
        await taken_in(client)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    async with asyncio.timeout(GIVE_UP_SECONDS):
        await everybody.wait()
    for client in clients:
        await client.close()
    return sorted(heard.values())


def main() -> int:
    """The listening process: says `ready`, then one line of JSON with the moments of hearing."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.relay_fanout")
    parser.add_argument("--bus", required=True)
    parser.add_argument("--credentials", type=Path, required=True)
    for name in ("--round", "--instances", "--connections"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    instances = _instances(options.round, options.instances)
    moments = uvloop.run(listen(options.bus, options.credentials, instances, options.connections))
    sys.stdout.buffer.write(orjson.dumps(moments) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

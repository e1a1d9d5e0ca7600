"""Runs the forwarder: `python3 -m sco_forwarder --nodes /etc/sco-forwarder/nodes.json`."""

from __future__ import annotations

import argparse
import logging
import signal
import ssl
import sys
from pathlib import Path

from .gate import Gate, Nodes
from .orders import Orders
from .server import Server, stopper
from .slurm import Slurm

DEFAULT_PORT = 6821
# Below what an agent gives its scheduler, so that a hung slurmctld is told of in time.
COMMAND_SECONDS = 0.6

log = logging.getLogger("sco-forwarder")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="sco_forwarder", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--nodes", type=Path, required=True, help="file of registered nodes and their keys")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, default=DEFAULT_PORT, help="port to listen on, 0 for any")
    made.add_argument(
        "--command-seconds", type=float, default=COMMAND_SECONDS, help="how long a Slurm command may take"
    )
    made.add_argument("--tls-certificate", type=Path, help="certificate chain of this server")
    made.add_argument("--tls-key", type=Path, help="private key of that certificate")
    return made


def tls_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.tls_certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.tls_certificate, options.tls_key)
    return context


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
    options = parser().parse_args()
    try:
        gate = Gate(Nodes(options.nodes))
        orders = Orders(Slurm(options.command_seconds))
        server = Server((options.host, options.port), gate, orders, tls_context(options))
    except (OSError, ValueError) as error:
        log.error("cannot start: %s", error)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stopper(server))
    log.info("listening on %s:%s", *server.server_address[:2])
    server.serve_forever(poll_interval=0.1)
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

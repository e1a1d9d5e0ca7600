"""`python -m lab.issuer --data-dir D --port P`: the development issuer as a process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
from pathlib import Path

from lab.issuer.accounts import CLIENTS_FILE
from lab.issuer.issuer import AUDIENCE
from lab.issuer.server import LOOPBACK, RunningIssuer


def main() -> int:
    """Serve until SIGTERM or SIGINT; SIGHUP rotates the keys; 2 when the start is refused."""
    options = _parser().parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        running = RunningIssuer(options.port, options.data_dir, host=options.host, audience=options.audience)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"lab.issuer: {error}\n")
        return 2
    sys.stdout.write(f"lab.issuer: {running.issuer.url}, clients in {options.data_dir / CLIENTS_FILE}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(running.serve())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.issuer", description="OpenID issuer for development, on loopback only."
    )
    parser.add_argument("--port", type=int, default=0, help="loopback port, 0 for any free one")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder for keys, clients and secrets")
    parser.add_argument("--host", default=LOOPBACK, help="loopback address to listen on")
    parser.add_argument("--audience", default=AUDIENCE, help="what access tokens are made out for")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m lab.cloud --port P --data-dir D --speed S`: the simulated cloud as a process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from pydantic import ValidationError

from lab.cloud.server import CREDENTIALS_FILE, RunningCloud
from lab.cloud.settings import CloudSettings


def main() -> int:
    """Serve until SIGTERM or SIGINT, then save the state; 2 when the start is refused."""
    options = _parser().parse_args()
    try:
        settings = CloudSettings(
            port=options.port,
            data_dir=options.data_dir,
            speed=options.speed,
            seed=options.seed,
            nats_url=options.nats_url,
        )
        running = RunningCloud(settings)
    except (ValidationError, ValueError, OSError) as error:
        sys.stderr.write(f"lab.cloud: {error}\n")
        return 2
    sys.stdout.write(f"lab.cloud: {running.base_url}, credentials in {options.data_dir / CREDENTIALS_FILE}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(running.serve())
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = CloudSettings()
    parser = argparse.ArgumentParser(prog="python -m lab.cloud", description="Simulated private cloud.")
    parser.add_argument("--port", type=int, default=defaults.port, help="loopback port, 0 for any free one")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder for state and credentials")
    parser.add_argument("--speed", type=float, default=defaults.speed, help="cloud seconds per real second")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="decides capacities and prices")
    parser.add_argument("--nats-url", help="where notifications are published; none are without it")
    return parser


if __name__ == "__main__":
    sys.exit(main())

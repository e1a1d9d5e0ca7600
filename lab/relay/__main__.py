"""`python -m lab.relay --config FILE`: the notice relay as a process; `--new-key` makes its signing key."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from pydantic import ValidationError

from lab.relay.keys import KeyRefused, write_new_key
from lab.relay.server import RelaySettings, RunningRelay

REFUSED = 2


def main() -> int:
    """Serve until SIGTERM or SIGINT; 2 when the start is refused."""
    options = _parser().parse_args()
    try:
        if options.new_key is not None:
            key = write_new_key(options.new_key, options.key_id)
            sys.stdout.write(f'"{key.key_id}": "{key.public_text}"\n')
            return 0
        running = RunningRelay(RelaySettings.model_validate_json(options.config.read_bytes()))
    except (KeyRefused, OSError, ValueError) as error:
        sys.stderr.write(f"lab.relay: {_one_line(error)}\n")
        return REFUSED
    sys.stdout.write(f"lab.relay: {running.base_url}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(running.serve())
    return 0


def _one_line(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'config'}: {first['msg']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.relay", description="The provider's notice relay, on loopback."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--config", type=Path, help="JSON file with bus, key_file, key_id, token_file, journal")
    what.add_argument(
        "--new-key", type=Path, help="make a signing key in this file and print its public half"
    )
    parser.add_argument("--key-id", default="relay-1", help="name of a new key")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m lab.relay --config FILE`: the notice relay as a process.

`--new-key FILE` makes its signing key, `--new-bus FOLDER` the keys and accounts of a node bus.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from pydantic import ValidationError

from lab.relay.admission import Admission
from lab.relay.keys import KeyRefused, write_new_key
from lab.relay.server import RelaySettings, RunningRelay

REFUSED = 2
STORE = Path("/var/lib/node-bus/store")


def main() -> int:
    """Serve until SIGTERM or SIGINT; 2 when the start is refused."""
    options = _parser().parse_args()
    try:
        if options.new_key is not None:
            key = write_new_key(options.new_key, options.key_id)
            sys.stdout.write(f'"{key.key_id}": "{key.public_text}"\n')
            return 0
        if options.new_bus is not None:
            _make_bus(options.new_bus, options.listen, options.store)
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


def _make_bus(folder: Path, listen: str, store: Path) -> None:
    admission = Admission(folder)
    made = [admission.config(listen=listen, store=store), admission.relay_file(), admission.history_file()]
    sys.stdout.write("".join(f"{path}\n" for path in (*made, admission.keys_file)))


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
    what.add_argument("--new-bus", type=Path, help="make the keys and accounts of a node bus in this folder")
    parser.add_argument("--key-id", default="relay-1", help="name of a new key")
    parser.add_argument("--listen", default="127.0.0.1:4222", help="where a new bus listens, host:port")
    parser.add_argument("--store", type=Path, default=STORE, help="where a new bus keeps its streams")
    return parser


if __name__ == "__main__":
    sys.exit(main())

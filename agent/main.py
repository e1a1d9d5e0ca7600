"""`sco-agent`: watches over one node and drains it when its provider takes it back."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent.assemble import Agent
from agent.bounded import describe
from agent.clock import ProviderClock, SystemClock
from agent.files import read_bounded, write_atomic
from agent.metadata import Metadata
from agent.selfcheck import Check, is_ready
from agent.settings import AgentSettings, SettingsError, read_settings
from agent.systemd import notify
from wire.node import InstanceId

EXIT_NOT_READY, EXIT_USAGE = 1, 2
INSTANCE_FILE = "instance-id"
ASK_AGAIN_SECONDS = 1.0
CHECK_LIMIT_SECONDS = 10.0
# What each connection over TLS sets aside to read into; the event loop would take 256 KiB for each.
TLS_BUFFER_BYTES = 32 * 1024
log = logging.getLogger("sco.agent")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Exit codes: 0 well, 1 the self-check did not pass, 2 a wrong setting or argument."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        print(f"sco-agent: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(asyncio.run(_check(settings) if given.action == "check" else _watch(settings)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sco-agent", description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="[check]")
    actions.add_parser("check", help="tell whether a notice would reach this node and whether it could drain")
    return parser


async def _watch(settings: AgentSettings) -> int:
    SSLProtocol.max_size = TLS_BUFFER_BYTES
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    finding = asyncio.ensure_future(_instance_id(settings))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({finding, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if finding.done():
        agent = Agent(settings, finding.result())
        if settings.metrics_port:
            agent.metrics.serve(settings.metrics_port)
        await agent.run(stop)
    finding.cancel()
    stopping.cancel()
    return 0


async def _check(settings: AgentSettings) -> int:
    """Ask everything that the running agent would, with connections of its own, and change nothing."""
    try:
        instance_id = await asyncio.wait_for(_instance_id(settings), CHECK_LIMIT_SECONDS)
    except TimeoutError:
        print("instance      no   neither SCO_AGENT_INSTANCE_ID nor the metadata service says which this is")
        return EXIT_NOT_READY
    checks = await Agent(settings, instance_id).check_once(CHECK_LIMIT_SECONDS)
    for check in checks:
        print(_line(check))
    return 0 if is_ready(checks) else EXIT_NOT_READY


def _line(check: Check) -> str:
    return f"{check.name:<13} {'yes' if check.passed else 'no':<4} {check.detail}"


async def _instance_id(settings: AgentSettings) -> str:
    """Which instance this is: as set, as kept from the last start, or as the provider says, once it does."""
    if settings.instance_id is not None:
        return settings.instance_id
    path = settings.state_dir / INSTANCE_FILE
    kept = _valid_id((read_bounded(path) or b"").decode(errors="replace").strip())
    if kept is not None:
        return kept
    clock = SystemClock()
    metadata = Metadata(settings.metadata_url, clock, ProviderClock(clock), lambda: None)
    while True:
        try:
            found = _valid_id(await metadata.instance_id())
        except OSError as error:
            log.warning("which instance this is, is not known yet: %s", describe(error))
            found = None
        if found is not None:
            _keep_id(path, found)
            return found
        notify("STATUS=waiting for the metadata service to say which instance this is")
        await asyncio.sleep(ASK_AGAIN_SECONDS)


def _valid_id(text: str) -> str | None:
    try:
        found: str = TypeAdapter(InstanceId).validate_python(text)
    except ValidationError:
        return None
    return found


def _keep_id(path: Path, instance_id: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, f"{instance_id}\n".encode())
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)


if __name__ == "__main__":
    main()

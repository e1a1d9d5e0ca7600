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

from agent.assemble import Agent
from agent.instance import Instance
from agent.selfcheck import Check, is_ready
from agent.settings import AgentSettings, SettingsError, read_settings

EXIT_NOT_READY, EXIT_USAGE, EXIT_ANOTHER = 1, 2, 3
CHECK_LIMIT_SECONDS = 10.0
# What each connection over TLS sets aside to read into; the event loop would take 256 KiB for each.
TLS_BUFFER_BYTES = 32 * 1024
log = logging.getLogger("sco.agent")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command. Exit codes: 0 well, 1 the self-check did not pass, 2 a wrong setting or argument,
    3 this is another instance than was remembered."""
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
    instance = Instance(settings)
    finding = asyncio.ensure_future(instance.find())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({finding, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not finding.done():
        finding.cancel()
        return 0
    instance.keep(finding.result())
    return await _watch_over(settings, instance, finding.result(), stop)


async def _watch_over(
    settings: AgentSettings, instance: Instance, instance_id: str, stop: asyncio.Event
) -> int:
    """Run until told to stop, or until the provider says that this is another instance than it was."""
    agent = Agent(settings, instance_id)
    if settings.metrics_port:
        agent.metrics.serve(settings.metrics_port)
    another = asyncio.ensure_future(instance.until_another(instance_id))
    another.add_done_callback(lambda _: stop.set())
    await agent.run(stop)
    if another.done():
        instance.keep(another.result())
        log.error(
            "this is instance %s, not %s: the agent starts again as that", another.result(), instance_id
        )
        return EXIT_ANOTHER
    another.cancel()
    return 0


async def _check(settings: AgentSettings) -> int:
    """Ask everything that the running agent would, with connections of its own, and change nothing."""
    try:
        instance_id = await asyncio.wait_for(Instance(settings).find(), CHECK_LIMIT_SECONDS)
    except TimeoutError:
        print("instance      no   neither SCO_AGENT_INSTANCE_ID nor the metadata service says which this is")
        return EXIT_NOT_READY
    checks = await Agent(settings, instance_id).check_once(CHECK_LIMIT_SECONDS)
    for check in checks:
        print(_line(check))
    return 0 if is_ready(checks) else EXIT_NOT_READY


def _line(check: Check) -> str:
    return f"{check.name:<13} {'yes' if check.passed else 'no':<4} {check.detail}"


if __name__ == "__main__":
    main()

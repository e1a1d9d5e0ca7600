"""Which loopback port each server listens on: asked for, remembered, or free."""

from __future__ import annotations

import secrets
import socket
import sys
from collections import deque
from collections.abc import Set
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from lab.stack.errors import PortTakenError, StackError

LOOPBACK = "127.0.0.1"
LOWEST_FREE_PORT = 20_000
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32_768
ATTEMPTS = 200
# Enough that a server which is down for a moment still has its port.
MOST_CLAIMS = 200
_claims: deque[socket.socket] = deque()

OPTIONS = {
    "postgres": "--postgres-port",
    "temporal": "--temporal-port",
    "web_ui": "--web-ui-port",
    "nats": "--nats-port",
    "nats_monitor": "--nats-monitor-port",
}
"""The command-line option that sets each port, named in errors."""


@dataclass(frozen=True)
class Ports:
    """TCP ports on 127.0.0.1. Zero means: the one used last time if it is free, else any free one."""

    postgres: int = 0
    temporal: int = 0
    web_ui: int = 0
    nats: int = 0
    nats_monitor: int = 0

    def __post_init__(self) -> None:
        for name, port in asdict(self).items():
            if not 0 <= port <= 65_535:  # noqa: PLR2004 - the width of a TCP port
                raise StackError(
                    f"{OPTIONS[name]} is {port}, which is no TCP port. Use 1 to 65535, or 0 for a free one."
                )


PORT_NAMES = tuple(field.name for field in fields(Ports))


def choose(wanted: Ports, remembered: Ports, held: Set[str]) -> Ports:
    """Return a port for every name, none of them zero.

    `held` names the ports that running servers of this stack listen on: they stay where they are.
    Raises PortTakenError when a port asked for by number is in use or asked for twice.
    """
    chosen: dict[str, int] = {}
    for name in PORT_NAMES:
        if name in held:
            chosen[name] = _stay(name, getattr(wanted, name), getattr(remembered, name))
    for name in PORT_NAMES:
        if name not in chosen and getattr(wanted, name):
            chosen[name] = _as_asked(name, getattr(wanted, name), chosen)
    for name in PORT_NAMES:
        if name not in chosen:
            last = getattr(remembered, name)
            reusable = last and last not in chosen.values() and is_free(last)
            chosen[name] = last if reusable else any_free(chosen)
    return Ports(**chosen)


def require_free(name: str, port: int) -> None:
    """Raise PortTakenError when no server could listen on the port."""
    obstacle = _obstacle(port)
    if obstacle is not None:
        raise PortTakenError(
            f"Port {port} on {LOOPBACK}, needed for {name}, cannot be used: {obstacle}. "
            f"Stop the program that has it, or choose another port with {OPTIONS[name]}."
        )


def listen_on(port: int, host: str = LOOPBACK) -> socket.socket:
    """A listening socket for a server of ours; port 0 is any free one. OSError says what is in the way.

    Who is told the address before the server takes its first request may connect, and waits for it.
    Answers leave at once: asyncio sets no such option on a socket that it is handed, and each answer on a
    kept connection would wait 40 ms.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        bound.bind((host, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise OSError(
            error.errno, f"port {port} on {host} cannot be used ({error.strerror}): choose another"
        ) from error
    return bound


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the loopback port now."""
    return _obstacle(port) is None


def _obstacle(port: int) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error.strerror
    return None


def _stay(name: str, wanted: int, current: int) -> int:
    if wanted not in (0, current):
        raise PortTakenError(
            f"{OPTIONS[name]} asks for {wanted}, but {name} of this stack already runs on port {current}. "
            f"Stop the stack first to move it."
        )
    return current


def _as_asked(name: str, port: int, chosen: dict[str, int]) -> int:
    for other, taken in chosen.items():
        if taken == port:
            raise PortTakenError(
                f"Port {port} is asked for by {OPTIONS[name]} and already given to {other}. "
                f"Choose another port with {OPTIONS[name]} or {OPTIONS[other]}."
            )
    require_free(name, port)
    return port


def any_free(chosen: dict[str, int]) -> int:
    """A port that nobody listens on and that no other process was given and has not come to use."""
    # Below the ephemeral range: a client that retries while a server is down could otherwise be given
    # the server's own port as its source, and keep the server from coming back.
    top = max(_ephemeral_start(), LOWEST_FREE_PORT + 1_000)
    for _ in range(ATTEMPTS):
        port = LOWEST_FREE_PORT + secrets.randbelow(top - LOWEST_FREE_PORT)
        if port not in chosen.values() and is_free(port) and _is_claimed_by_us(port):
            return port
    raise PortTakenError(
        f"No free port found between {LOWEST_FREE_PORT} and {top - 1} after {ATTEMPTS} attempts. "
        f"Choose ports with {', '.join(OPTIONS.values())}."
    )


def _is_claimed_by_us(port: int) -> bool:
    """Claim a port until this process ends; False where a process of this machine has claimed it.

    The claim is a name in the kernel, which leaves nothing behind. It says nothing to other programs.
    """
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0sco-lab-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    if len(_claims) > MOST_CLAIMS:
        _claims.popleft().close()
    return True


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return DEFAULT_EPHEMERAL_START

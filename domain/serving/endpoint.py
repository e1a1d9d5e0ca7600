"""What an `endpointRef` may be: where the control plane may send a request with a pool's credential.

Whoever registers a pool chooses an address that our process connects to. So what it may be is a closed
rule, asked twice: of the text when it is registered, and of every address that its host has when a
connection is made, since a name may mean another address by then.

A reference is `<dialect>+<scheme>://<host>[:<port>][/<path>]`, such as `ollama+https://gpu-7.example.net:8443`;
without a dialect it is `openai`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, NamedTuple

from pydantic import Field

from domain.model import Frozen

MAX_LENGTH = 255
MAX_HOST = 253
LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
REFERENCE = re.compile(
    r"(?:(?P<dialect>[a-z]+)\+)?(?P<scheme>[a-z]+)://"
    r"(?P<host>\[[0-9a-f]*:[0-9a-f:.]*\]|[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>(?:/[A-Za-z0-9._~-]+)*)/?"
)
NAME = re.compile(rf"{LABEL}(?:\.{LABEL})*")
NUMBER_LIKE = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
DEFAULT_PORTS = {"https": 443, "http": 80}
ANY_HOST = "*"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
HostPattern = Annotated[str, Field(pattern=rf"^(?:\*|(?:\*\.)?{LABEL}(?:\.{LABEL})*)$", max_length=MAX_HOST)]
Port = Annotated[int, Field(ge=1, le=65_535)]

# No list of networks opens these: a host's own metadata, other protocols' ranges, addresses that hide
# another one (mapped, translated and tunnelled IPv4), and those that reach many hosts or none.
NEVER: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("100.100.100.200/32", "168.63.129.16/32"),
        *("::/128", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48"),
        *("2001::/32", "2002::/16", "fe80::/10", "fec0::/10", "ff00::/8"),
        *("fd00:ec2::/32", "fd20:ce::254/128"),
    )
)
LOOPBACK_6 = IPv6Address("::1")
# Names that hosts answer to with their own loopback or metadata, whatever the resolver says today.
NEVER_NAMES = ("localhost", "localdomain", "metadata.google.internal", "metadata.goog", "instance-data")


class Dialect(StrEnum):
    """How a serving endpoint is spoken to."""

    OLLAMA = "ollama"
    OPENAI = "openai"


class EndpointTerms(Frozen):
    """Where serving endpoints may be.

    `hosts` are names, or suffixes such as `*.models.example.net`; `*` is any name with a dot that is no
    punycode. `networks` are the addresses allowed besides public ones: private ranges, or loopback in a
    laboratory. `plain_http` allows http to addresses in `networks`, and nowhere else. An answer may take
    `answer_seconds`, the load of a model `load_seconds`.
    """

    hosts: tuple[HostPattern, ...] = (ANY_HOST,)
    networks: tuple[Network, ...] = ()
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (443, 8443)
    plain_http: bool = False
    connect_seconds: Annotated[float, Field(gt=0, le=60)] = 3.0
    answer_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    load_seconds: Annotated[float, Field(gt=0, le=7200)] = 900.0


class EndpointAddress(NamedTuple):
    """Where an endpoint is and how it is spoken to. `path` is empty or starts with a slash."""

    dialect: Dialect
    scheme: str
    host: str
    port: int
    path: str

    @property
    def literal(self) -> Address | None:
        """The host, where it is an address and no name."""
        return literal_of(self.host)


class EndpointRefusal(NamedTuple):
    """Why a reference is refused, and what is allowed instead."""

    why: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.why}; allowed is {self.allowed}"


def read_endpoint(reference: str, terms: EndpointTerms) -> EndpointAddress | EndpointRefusal:
    """The address that a reference means, or why it is refused."""
    if len(reference) > MAX_LENGTH:
        return _refusal(f"it has {len(reference)} characters", terms)
    match = REFERENCE.fullmatch(reference)
    if match is None:
        return _refusal(f"{_shown(reference)} is not written like one", terms)
    dialect, scheme, host = match["dialect"] or Dialect.OPENAI, match["scheme"], match["host"].strip("[]")
    if dialect not in set(Dialect):
        return _refusal(f"there is no dialect {dialect!r}", terms)
    if scheme not in DEFAULT_PORTS:
        return _refusal(f"the scheme {scheme!r} is not allowed", terms)
    port = int(match["port"] or DEFAULT_PORTS[scheme])
    path = match["path"]
    if dialect == Dialect.OPENAI:
        path = path.removesuffix("/v1")
    address = EndpointAddress(Dialect(dialect), scheme, host, port, path)
    why = (
        _scheme_problem(scheme, terms)
        or _port_problem(port, terms)
        or _path_problem(path)
        or _host_problem(address, terms)
    )
    return address if why is None else _refusal(why, terms)


def address_problem(address: Address, scheme: str, terms: EndpointTerms) -> str | None:
    """Why no connection may be made to this address; None when it may."""
    if address != LOOPBACK_6 and _within(address, NEVER):
        return f"{address} is never an endpoint's address"
    if _within(address, terms.networks):
        return None
    if not address.is_global:
        return f"{address} is not public and in no allowed network"
    if scheme != "https":
        return f"{address} is in no allowed network, and only there may http be spoken"
    return None


def literal_of(host: str) -> Address | None:
    """The address that a host is written as, in its plain form; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def allowed_text(terms: EndpointTerms) -> str:
    """What may be registered, in words."""
    schemes = "https, or http within the networks" if terms.plain_http else "https"
    networks = ", ".join(str(one) for one in terms.networks)
    dialects = " or ".join(Dialect)
    return (
        f"[{dialects}+]scheme://host[:port][/path] in lower case and at most {MAX_LENGTH} characters, with"
        f" scheme {schemes}; host {', '.join(terms.hosts) or 'none by name'};"
        f" port {', '.join(str(one) for one in terms.ports)}; at a public address"
        + (f" or one in {networks}" if networks else "")
    )


def _refusal(why: str, terms: EndpointTerms) -> EndpointRefusal:
    return EndpointRefusal(why, allowed_text(terms))


def _shown(reference: str) -> str:
    """The reference as text for people, unless it seems to hold a credential."""
    if "@" in reference:
        return "a reference with @, which may hold a credential and is not repeated here,"
    return ascii(reference)


def _scheme_problem(scheme: str, terms: EndpointTerms) -> str | None:
    return "http is not allowed" if scheme == "http" and not terms.plain_http else None


def _port_problem(port: int, terms: EndpointTerms) -> str | None:
    return None if port in terms.ports else f"port {port} is not allowed"


def _path_problem(path: str) -> str | None:
    dots = any(part in {".", ".."} for part in path.split("/"))
    return f"the path {path!r} has a part of dots" if dots else None


def _host_problem(address: EndpointAddress, terms: EndpointTerms) -> str | None:
    literal = address.literal
    if literal is None:
        return _name_problem(address.host, terms)
    if str(literal) != address.host:
        return f"the address {address.host} is written {literal}"
    if not _within(literal, terms.networks):
        return f"{literal} is in no allowed network, so the host must be a name"
    return address_problem(literal, address.scheme, terms)


def _name_problem(host: str, terms: EndpointTerms) -> str | None:
    if len(host) > MAX_HOST or not NAME.fullmatch(host):
        return f"{host[:80]!r} is no host name"
    labels = host.split(".")
    if NUMBER_LIKE.fullmatch(labels[-1]):
        return f"{host!r} is a number, and some programs read it as an address"
    if any(host == name or host.endswith(f".{name}") for name in NEVER_NAMES) or labels[0] in NEVER_NAMES:
        return f"{host!r} is never an endpoint's name"
    if not any(_matches(host, pattern) for pattern in terms.hosts):
        return f"the host {host!r} is not allowed"
    return None


def _matches(host: str, pattern: str) -> bool:
    """Whether a pattern covers a host; punycode, which looks like other names, only where it is spelt out."""
    if pattern == host:
        return True
    if not pattern.startswith(ANY_HOST) or any(label.startswith("xn--") for label in host.split(".")):
        return False
    return "." in host if pattern == ANY_HOST else host.endswith(pattern.removeprefix(ANY_HOST))


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)

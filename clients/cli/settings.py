"""Where the server is, and whether that is an address."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

import httpx2

from clients.cli.failures import usage

DEFAULT_SERVER = "http://127.0.0.1:8080"
SERVER_VARIABLE = "SCO_SERVER"
LAB_FILE = Path(".lab") / "api.url"
_MAX_LAB_FILE = 4096
_MAX_PORT = 65535
_EXAMPLE = f"give http://HOST:PORT or https://HOST, for example {DEFAULT_SERVER}"


def find_server(flag: str | None, environment: Mapping[str, str], directory: Path) -> str:
    """The first of: the flag, the variable, the file that a lab in `directory` wrote, the default."""
    if flag is not None:
        return _checked(flag, "--server")
    variable = environment.get(SERVER_VARIABLE, "")
    if variable:
        return _checked(variable, SERVER_VARIABLE)
    lab = _lab_url(directory / LAB_FILE)
    return _checked(lab, str(LAB_FILE)) if lab else DEFAULT_SERVER


def is_loopback(server: str) -> bool:
    host = httpx2.URL(server).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _lab_url(path: Path) -> str:
    """A lab that is gone or that another account runs is no reason to fail."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_LAB_FILE).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _checked(text: str, where: str) -> str:
    try:
        url = httpx2.URL(text.strip())
        port = url.port
    except (httpx2.InvalidURL, ValueError):
        raise usage(f"{where} is {text!r}, which is no address", _EXAMPLE) from None
    if url.scheme not in ("http", "https") or not url.host or not _is_port(port):
        raise usage(f"{where} is {text!r}, which is no http or https address", _EXAMPLE)
    if url.userinfo:
        raise usage(
            f"{where} holds a user name or password, which sco never sends: leave it out of the address"
        )
    if url.query or url.fragment:
        raise usage(f"{where} is {text!r}: an address has no ? or # part", _EXAMPLE)
    return str(url).rstrip("/")


def _is_port(port: int | None) -> bool:
    """None stands for the scheme's own."""
    return port is None or 0 < port <= _MAX_PORT

"""Which addresses of an issuer are trusted: https, or plain http on this machine's own loopback."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

RULE = "allowed is https://HOST[:PORT][/PATH], or http:// for a loopback address"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_plain(url: str) -> bool:
    return urlsplit(url).scheme == "http"


def problem_of_address(url: str) -> str | None:
    """Why a token issuer cannot be asked at this address, or None."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("https", "http") or not host or port == 0:
        return "it is no https address"
    if parts.username is not None or parts.password is not None:
        return "it holds a user name or password"
    if parts.scheme == "http" and not is_loopback(host):
        return "it would be asked in plain text"
    return None

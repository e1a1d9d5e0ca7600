"""What each route needs. Whoever adds a route that changes something adds its line, or nothing starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from api.sign_in.principal import ADMINISTER, OPERATE, PLACE, READ, Need

# Whoever comes is let in: how the process is, how it looks, and how to sign in.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/sign-in", "/sign-in/callback", "/sign-out"})
OPEN_FOLDER = "/static/"
# Every GET needs READ. A POST that only computes is listed with what it needs, too.
NEEDS: dict[tuple[str, str], Need] = {
    ("POST", "/factory/compute-pools"): ADMINISTER,
    ("PATCH", "/factory/compute-pools/{poolId}"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/activate"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/drain"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/resume"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/retire"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/warm"): ADMINISTER,
    ("PUT", "/factory/warm-profiles/{profileId}"): ADMINISTER,
    ("DELETE", "/factory/warm-profiles/{profileId}"): ADMINISTER,
    ("POST", "/factory/compute-pools/{poolId}/endpoint-reports"): PLACE,
    ("POST", "/factory/compute-pools/placements"): PLACE,
    ("POST", "/factory/compute-pools/placements/{placementId}/release"): PLACE,
    ("POST", "/factory/compute-pools/placements/{placementId}/renew"): PLACE,
    ("PUT", "/partitions/{partitionId}"): ADMINISTER,
    ("PUT", "/contracts/{contractId}"): ADMINISTER,
    ("POST", "/nodes/{instanceId}/revoke"): ADMINISTER,
    ("POST", "/factory/audits"): OPERATE,
    ("PUT", "/workloads/{workloadId}"): OPERATE,
    ("POST", "/workloads/{workloadId}/claims"): OPERATE,
    ("POST", "/workloads/{workloadId}/scale"): OPERATE,
    ("POST", "/placements"): OPERATE,
    ("POST", "/placements/{workloadId}/replay"): READ,
    # The forms of the screens: each does what one of the above does.
    ("POST", "/ui/pools/{poolId}/warm"): ADMINISTER,
    ("POST", "/ui/pools/{poolId}/{step}"): ADMINISTER,
    ("POST", "/ui/warm-profiles"): ADMINISTER,
    ("POST", "/ui/warm-profiles/{profileId}"): ADMINISTER,
    ("POST", "/ui/warm-profiles/{profileId}/remove"): ADMINISTER,
}


class Caller(StrEnum):
    """How whoever calls a route shows who it is: people and programs of a tenant with a token of the issuer,
    a node with its signature, one that is not known yet with a one-time token, the provider with a secret."""

    TOKEN = "token"  # noqa: S105 - a word
    NODE = "node"
    NEWCOMER = "newcomer"
    PROVIDER = "provider"


# Routes of nodes and of the provider that starts them. A token of the issuer opens none of them.
CALLERS: dict[tuple[str, str], Caller] = {
    ("POST", "/nodes/vendordata"): Caller.PROVIDER,
    ("POST", "/nodes/identity"): Caller.NEWCOMER,
    ("GET", "/nodes/{instanceId}/bundle"): Caller.NODE,
    ("POST", "/nodes/{instanceId}/bus-credentials"): Caller.NODE,
}
_CALLERS = tuple(
    (method, re.compile(re.sub(r"\\{\w+\\}", "([^/]+)", re.escape(template))), caller)
    for (method, template), caller in CALLERS.items()
)


def caller_at(method: str, path: str) -> tuple[Caller, str | None]:
    """How the caller of a path shows who it is, and the instance that the path names."""
    for known, pattern, caller in _CALLERS:
        found = pattern.fullmatch(path) if known == method else None
        if found is not None:
            return caller, found[1] if pattern.groups else None
    return Caller.TOKEN, None


def is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_FOLDER)


def need_of(method: str, template: str) -> Need | None:
    """What a route needs, by its method and the template of its path; None where nothing says so."""
    if method in ("GET", "HEAD"):
        return READ
    return NEEDS.get((method, template))


def routes_of(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Method and path template of every route of an application; a mounted one takes any method."""
    for route in iter_route_contexts(app.routes):
        for method in sorted(route.methods or ("ANY",)):
            yield method, str(route.path)


def require_needs(app: FastAPI) -> None:
    """Refuse an application with a route of which nobody has said whom it needs."""
    unsaid = [
        f"{method} {path}"
        for method, path in routes_of(app)
        if not is_open(path if method != "ANY" else f"{path}/")
        and (method, path) not in CALLERS
        and need_of(method, path) is None
    ]
    if unsaid:
        raise RuntimeError(f"api/sign_in/needs.py does not say what these routes need: {', '.join(unsaid)}")

"""Keystone v3: versions, tokens by password, application credential or token, and the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lab.cloud.cloud import Cloud
from lab.cloud.errors import CloudError
from lab.cloud.estate import REGIONS, stable_id
from lab.cloud.identity import (
    APPLICATION_CREDENTIAL_ID,
    DOMAIN_ID,
    DOMAIN_NAME,
    PROJECT_ID,
    PROJECT_NAME,
    ROLES,
    UNAUTHORIZED,
    USER_ID,
    USER_NAME,
    Token,
)
from lab.cloud.web.respond import body_of, json, keystone_error, route

SERVICES: dict[str, tuple[str, str]] = {
    "compute": ("nova", "compute/v2.1"),
    "placement": ("placement", "placement"),
    "reservation": ("blazar", "reservation/v1"),
    "baremetal": ("ironic", "baremetal"),
    "rates": ("provider-rates", "rates/v1"),
}
"""Service type to (name, path below the region)."""


@dataclass(frozen=True, slots=True)
class IdentityApi:
    """The identity service of all regions. `base_url` is where the whole cloud listens."""

    cloud: Cloud
    base_url: str

    def routes(self) -> list[BaseRoute]:
        table = (
            ("/", self.versions, "GET"),
            ("/v3", self.version, "GET"),
            ("/v3/", self.version, "GET"),
            ("/v3/auth/tokens", self.issue, "POST"),
            ("/v3/auth/tokens", self.validate, "GET"),
            ("/v3/auth/tokens", self.revoke, "DELETE"),
            ("/v3/auth/catalog", self.show_catalog, "GET"),
            ("/v3/auth/projects", self.projects, "GET"),
        )
        return [route(path, handler, method, keystone_error) for path, handler, method in table]

    def versions(self, request: Request) -> Response:
        return json({"versions": {"values": [self._version()]}}, 300)

    def version(self, request: Request) -> Response:
        return json({"version": self._version()})

    def issue(self, request: Request) -> Response:
        auth = body_of(request).get("auth")
        if not isinstance(auth, dict) or not isinstance(auth.get("identity"), dict):
            raise CloudError(400, "Expecting to find identity in auth.")
        token = self._authenticate(auth)
        return json({"token": self._describe(token)}, 201, {"X-Subject-Token": token.id})

    def validate(self, request: Request) -> Response:
        self.cloud.identity.check(request.headers.get("x-auth-token"))
        subject = request.headers.get("x-subject-token")
        try:
            token = self.cloud.identity.check(subject)
        except CloudError as error:
            raise CloudError(404, "Could not find token.") from error
        return json({"token": self._describe(token)}, 200, {"X-Subject-Token": token.id})

    def revoke(self, request: Request) -> Response:
        self.cloud.identity.check(request.headers.get("x-auth-token"))
        self.cloud.identity.revoke(request.headers.get("x-subject-token", ""))
        return Response(status_code=204)

    def show_catalog(self, request: Request) -> Response:
        self.cloud.identity.check(request.headers.get("x-auth-token"))
        return json({"catalog": self._catalog(), "links": {}})

    def projects(self, request: Request) -> Response:
        self.cloud.identity.check(request.headers.get("x-auth-token"))
        project = {"id": PROJECT_ID, "name": PROJECT_NAME, "domain_id": DOMAIN_ID, "enabled": True}
        return json({"projects": [project], "links": {}})

    def _authenticate(self, auth: dict[str, Any]) -> Token:
        identity = auth["identity"]
        methods = identity.get("methods") or []
        scoped = auth.get("scope") != "unscoped"
        _check_scope(auth.get("scope"))
        if methods == ["password"]:
            user = _part(identity, "password", "user")
            _check_domain(user)
            password = str(user.get("password", ""))
            return self.cloud.identity.with_password(_name_or_id(user), password, scoped=scoped)
        if methods == ["application_credential"]:
            credential = _part(identity, "application_credential")
            secret = str(credential.get("secret", ""))
            return self.cloud.identity.with_application_credential(_name_or_id(credential), secret)
        if methods == ["token"]:
            token = _part(identity, "token")
            return self.cloud.identity.with_token(str(token.get("id", "")), scoped=scoped)
        raise CloudError(401, UNAUTHORIZED)

    def _describe(self, token: Token) -> dict[str, Any]:
        domain = {"id": DOMAIN_ID, "name": DOMAIN_NAME}
        described: dict[str, Any] = {
            "methods": [token.method],
            "user": {"id": USER_ID, "name": USER_NAME, "domain": domain, "password_expires_at": None},
            "audit_ids": [stable_id("audit", token.id)[:22]],
            "issued_at": _time(token.issued_at),
            "expires_at": _time(token.expires_at),
        }
        if token.method == "application_credential":
            described["application_credential"] = {"id": APPLICATION_CREDENTIAL_ID, "restricted": True}
        if token.project_id is not None:
            described["project"] = {"id": PROJECT_ID, "name": PROJECT_NAME, "domain": domain}
            described["roles"] = [{"id": stable_id("role", role), "name": role} for role in ROLES]
            described["is_domain"] = False
            described["catalog"] = self._catalog()
        return described

    def _catalog(self) -> list[dict[str, Any]]:
        identity = [self._endpoint("identity", region, f"{self.base_url}/identity") for region in REGIONS]
        entries = [_service("identity", "keystone", identity)]
        for kind, (name, path) in SERVICES.items():
            elsewhere = self.cloud.settings.endpoints.get(kind, "")
            if elsewhere is None:
                continue
            endpoints = [
                self._endpoint(kind, region, elsewhere or f"{self.base_url}/{region}/{path}")
                for region in REGIONS
            ]
            entries.append(_service(kind, name, endpoints))
        return entries

    def _endpoint(self, kind: str, region: str, url: str) -> dict[str, str]:
        return {
            "id": stable_id("endpoint", kind, region).replace("-", ""),
            "interface": "public",
            "region": region,
            "region_id": region,
            "url": url,
        }

    def _version(self) -> dict[str, Any]:
        return {
            "id": "v3.14",
            "status": "stable",
            "updated": "2020-04-07T00:00:00Z",
            "links": [{"rel": "self", "href": f"{self.base_url}/identity/v3/"}],
            "media-types": [
                {"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}
            ],
        }


def _service(kind: str, name: str, endpoints: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "id": stable_id("service", kind).replace("-", ""),
        "type": kind,
        "name": name,
        "endpoints": endpoints,
    }


def _part(container: dict[str, Any], *path: str) -> dict[str, Any]:
    for name in path:
        part = container.get(name)
        if not isinstance(part, dict):
            raise CloudError(400, f"Expecting to find {name} in identity.")
        container = part
    return container


def _name_or_id(entry: dict[str, Any]) -> str:
    return str(entry.get("id") or entry.get("name") or "")


def _check_domain(user: dict[str, Any]) -> None:
    domain = user.get("domain")
    if "id" not in user and not (
        isinstance(domain, dict) and _name_or_id(domain) in (DOMAIN_ID, DOMAIN_NAME)
    ):
        raise CloudError(401, UNAUTHORIZED)


def _check_scope(scope: object) -> None:
    """A scope, when given, must be the one project; Keystone answers 401 for any other."""
    if scope is None or scope == "unscoped":
        return
    project = scope.get("project") if isinstance(scope, dict) else None
    if not isinstance(project, dict) or _name_or_id(project) not in (PROJECT_ID, PROJECT_NAME):
        raise CloudError(401, UNAUTHORIZED)


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

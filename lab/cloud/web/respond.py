"""Handlers, answers and error bodies, in the shapes of the real services."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab.cloud.errors import CloudError

Handler = Callable[[Request], Response]
ErrorShape = Callable[[CloudError], Response]
BODY_KEY = "cloud.body"
RULE_KEY = "cloud.fault_rule"
SIGNED_IN_KEY = "cloud.signed_in"
REQUEST_ID_KEY = "cloud.request_id"

_NOVA_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
_TITLES = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict"}


def json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(data), status, headers, "application/json")


def nova_error(error: CloudError) -> Response:
    """`{"forbidden": {"code": 403, "message": ...}}`; names as Nova gives them."""
    detail: dict[str, object] = {"code": error.status, "message": error.message}
    if error.status in (413, 429) and "Retry-After" in error.headers:
        detail["retryAfter"] = error.headers["Retry-After"]
    name = _NOVA_NAMES.get(error.status, "computeFault")
    return json({name: detail}, error.status, error.headers)


def keystone_error(error: CloudError) -> Response:
    title = _TITLES.get(error.status, "Error")
    body = {"error": {"code": error.status, "message": error.message, "title": title}}
    return json(body, error.status, error.headers)


def placement_error(error: CloudError) -> Response:
    title = _TITLES.get(error.status, "Error")
    entry = {
        "status": error.status,
        "title": title,
        "detail": error.message,
        "code": "placement.undefined_code",
    }
    return json({"errors": [entry]}, error.status, error.headers)


def blazar_error(error: CloudError) -> Response:
    body = {"error_code": error.status, "error_message": error.message, "error_name": error.status}
    return json(body, error.status, error.headers)


def ironic_error(error: CloudError) -> Response:
    """Ironic wraps its message in a text of JSON."""
    said = {"faultcode": "Client", "faultstring": error.message, "debuginfo": None}
    return json({"error_message": orjson.dumps(said).decode()}, error.status, error.headers)


def plain_error(error: CloudError) -> Response:
    """The provider's own endpoints and the admin API: `{"error": message}`."""
    return json({"error": error.message}, error.status, error.headers)


def route(path: str, handler: Handler, method: str, shape: ErrorShape) -> Route:
    """A route whose handler runs without a pause, so that each request changes the cloud at once."""

    async def run(request: Request) -> Response:
        try:
            return handler(request)
        except CloudError as error:
            return shape(error)

    return Route(path, run, methods=[method])


def body_of(request: Request) -> dict[str, Any]:
    """The JSON object in the request; 400 when there is none."""
    try:
        body = orjson.loads(request.scope[BODY_KEY])
    except orjson.JSONDecodeError as error:
        raise CloudError(400, "Malformed request body") from error
    if not isinstance(body, dict):
        raise CloudError(400, "Malformed request body")
    return body

"""Every refusal as one document (RFC 9457): what was wrong, which value, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.shapes import View

MEDIA_TYPE = "application/problem+json"


class FieldProblem(View):
    """One value that was refused. `value` is shown shortened; None where it was missing."""

    field: str
    where: str
    value: str | None
    allowed: str
    message: str


class ProblemDocument(View):
    """The body of every refusal. `reason` is a fixed word per kind of problem."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    reason: str
    what_to_do: str
    request_id: str | None = None
    errors: list[FieldProblem] = Field(default_factory=list)


class Kind(NamedTuple):
    """One kind of problem: its fixed word, the status it comes with, and the usual remedy."""

    reason: str
    status: int
    title: str
    what_to_do: str


INVALID = Kind(
    "invalid_request", 422, "A value was refused", "Correct the fields in `errors` and send it again."
)
UNREADABLE = Kind(
    "unreadable_body", 400, "The body cannot be read", "Send one well-formed JSON document in UTF-8."
)
WRONG_MEDIA_TYPE = Kind(
    "unsupported_media_type",
    415,
    "The body has another media type",
    "Set Content-Type to one that is allowed.",
)
TOO_LARGE = Kind("body_too_large", 413, "The body is too large", "Send less in one request.")
FOREIGN_HOST = Kind(
    "foreign_host",
    421,
    "This host is not served here",
    "Use a name that the service is served under; SCO_API_NAMES lists them.",
)
FOREIGN_ORIGIN = Kind(
    "foreign_origin",
    403,
    "Another site's page may not do this",
    "Call the API from a program or its own screens.",
)
NOT_SIGNED_IN = Kind(
    "not_signed_in",
    401,
    "Nobody is signed in",
    "Send a token of the issuer: `Authorization: Bearer TOKEN`. In a browser, open /sign-in.",
)
INVALID_TOKEN = Kind(
    "invalid_token",
    401,
    "The token or session was refused",
    "Get a new token from the issuer, made out for this service. In a browser, sign in again at /sign-in.",
)
NOT_ALLOWED = Kind(
    "not_allowed",
    403,
    "The caller may not do this",
    "Ask whoever manages access at the issuer for the scope or role that is missing.",
)
NODE_REFUSED = Kind(
    "node_refused",
    401,
    "Nothing proves which node sent this",
    "Sign the request with the key of a registered instance, and a clock within a minute of the Date of this"
    " answer. An instance registers once, with the token that its provider passes on to it.",
)
PROVIDER_REFUSED = Kind(
    "provider_refused",
    401,
    "Nothing proves that the provider sent this",
    "Put the secret of the node file into the address of the vendordata target.",
)
UNKNOWN_NODE = Kind("unknown_node", 404, "No such node", "Name an instance that this service has launched.")
NOT_REGISTERED = Kind(
    "node_not_registered",
    409,
    "The node has no identity",
    "Nothing is believed of it as it is. Delete its instance, or wait until it has registered.",
)
UNKNOWN_DRAIN = Kind(
    "unknown_drain", 404, "No such drain", "Name a node that drained; GET /drains lists them."
)
NOT_SLURM = Kind(
    "not_slurm",
    409,
    "The partition is none of Slurm",
    "Name a partition of Slurm; GET /partitions lists them.",
)
TOO_MANY_NODES = Kind(
    "too_many_nodes", 409, "More nodes than one answer holds", "Divide the cluster into more partitions."
)
NO_NODES = Kind(
    "no_nodes", 404, "Nodes are not served here", "Set SCO_NODE_FILE of the server, or ask another server."
)
NO_NODE_BUS = Kind(
    "no_node_bus", 404, "Agents are admitted to no bus here", "Give `bus` in the node file of the server."
)
NO_BUNDLE = Kind(
    "no_bundle", 409, "The instance can have no bundle", "Correct what `detail` names in the registry."
)
KEYS_UNAVAILABLE = Kind(
    "keys_unavailable", 503, "Nothing can be signed now", "Try again in a moment. The node keeps what it has."
)
TOO_MANY = Kind(
    "too_many_requests", 429, "The node asks too often", "Ask again after the seconds in Retry-After."
)
SIGN_IN_FAILED = Kind(
    "sign_in_failed", 400, "The sign-in did not complete", "Start again at /sign-in, in one window."
)
NO_SIGN_IN = Kind(
    "no_sign_in",
    404,
    "Nobody signs in at the screens of this server",
    "Set SCO_OIDC_CLIENT_ID and SCO_SESSION_KEY of the server, or call the API with a token.",
)
NO_SUCH_ROUTE = Kind("no_such_route", 404, "Nothing is here", "See /openapi.json for every path.")
WRONG_METHOD = Kind(
    "method_not_allowed", 405, "The path has no such method", "Use a method from the Allow header."
)
CLIENT_ERROR = Kind("refused", 400, "The request was refused", "See the detail.")
UNKNOWN_POOL = Kind("unknown_pool", 404, "No such pool", "List pools with GET /factory/compute-pools.")
UNKNOWN_CONTRACT = Kind(
    "unknown_contract", 404, "No such contract", "Create it with PUT /contracts/{contractId}."
)
UNKNOWN_WORKLOAD = Kind(
    "unknown_workload", 404, "No such workload", "Create it with PUT /workloads/{workloadId}."
)
UNKNOWN_PARTITION = Kind(
    "unknown_partition", 422, "No such partition", "Create it with PUT /partitions/{partitionId}."
)
UNKNOWN_REGION = Kind(
    "unknown_region", 422, "No pool is in this region", "Register a pool of the region first."
)
PARTITION_DIFFERS = Kind(
    "partition_differs", 409, "The partition exists with other facts", "Choose another partitionId."
)
UNKNOWN_AUDIT = Kind("unknown_audit", 404, "No such audit", "List audits with GET /factory/audits.")
UNKNOWN_PLACEMENT = Kind(
    "unknown_placement",
    404,
    "No such placement",
    "List them with GET /factory/compute-pools/placements, or GET /placements/{workloadId}/generations.",
)
PLACEMENT_ENDED = Kind(
    "placement_ended", 409, "The placement keeps nothing any more", "Place the model again."
)
SECRETS_UNAVAILABLE = Kind(
    "secrets_unavailable",
    503,
    "No credential for the endpoint can be had",
    "Try again in a moment. Nothing was placed.",
)
NO_CLAIM = Kind(
    "no_claim", 409, "The workload has no claim", "Send one with POST /workloads/{workloadId}/claims."
)
DUPLICATE_POOL = Kind("duplicate_pool", 409, "The pool exists with other facts", "Choose another poolId.")
GROUP_DIFFERS = Kind(
    "group_differs",
    409,
    "The group has another basis",
    "Send the group's own groupBasis, or another groupId.",
)
NO_SUCH_STEP = Kind(
    "no_such_step", 409, "The pool's state has no such step", "Take one of the steps in `allowedActions`."
)
POOL_HOLDS = Kind(
    "pool_holds",
    409,
    "The pool still holds something",
    "Wait until GET of the pool says drainedAt: what it holds is planned elsewhere meanwhile. Or resume it.",
)
VERSION_CONFLICT = Kind(
    "version_conflict", 412, "It changed meanwhile", "Read it again and send its new ETag in If-Match."
)
VERSION_REQUIRED = Kind(
    "version_required",
    428,
    "The request must say which version it means",
    "Read it and send its ETag in If-Match, or If-Match: * for whatever version it has.",
)
FIXED_FACT = Kind(
    "fixed_fact",
    422,
    "Facts are fixed when a pool is registered",
    "Send only what may change. For other facts register another pool, and drain this one.",
)
UNKNOWN_PROFILE = Kind(
    "unknown_warm_profile",
    404,
    "No such warm profile",
    "Create it with PUT /factory/warm-profiles/{profileId}.",
)
UNKNOWN_WARM_REQUEST = Kind(
    "unknown_warm_request",
    404,
    "No such warm request",
    "Ask for a model with POST /factory/compute-pools/{poolId}/warm.",
)
NOT_SERVING = Kind(
    "pool_not_serving",
    409,
    "The pool serves no models now",
    "Activate the pool and give it an endpointRef, or choose another one.",
)
MODEL_TOO_LARGE = Kind(
    "model_too_large", 422, "The model does not fit the pool", "Choose a pool with more vramGb."
)
ENDPOINT_REFUSED = Kind(
    "endpoint_refused",
    422,
    "No request may be sent to this endpoint",
    "Send a reference as `allowed` says. Who runs the platform may widen it: `endpoints` in the policy file.",
)
NO_ENDPOINT = Kind(
    "no_endpoint",
    409,
    "The pool serves no models",
    "Report pools that have accelerator memory and an endpointRef.",
)
WORKLOAD_DIFFERS = Kind(
    "workload_in_other_partition", 409, "The workload is in another partition", "Choose another workloadId."
)
CONTRACT_REFUSED = Kind("contract_refused", 422, "The contract was refused", "Correct what `detail` names.")
CLAIM_REFUSED = Kind(
    "claim_refused",
    422,
    "Nothing in the body is demand of this workload",
    "Send a list with its pending work.",
)
WOULD_SHRINK = Kind(
    "would_shrink",
    409,
    "The list would give capacity back that is in use",
    "To run fewer units, or more than the claim, scale to how many are to run in all: `sco scale NAME"
    " --units N`. Or repeat with allowShrink=true (`sco claim --allow-shrink`) if only what waits is to run.",
)
KEY_REUSED = Kind(
    "idempotency_key_reused", 422, "The key was used for another request", "Use a new Idempotency-Key."
)
KEY_IN_FLIGHT = Kind(
    "idempotency_key_in_flight", 409, "A request with this key is being answered", "Repeat it in a moment."
)
CONTENDED = Kind("contended", 409, "Others changed the same at this moment", "Send it again.")
BAD_PAGE_TOKEN = Kind("bad_page_token", 422, "The page token was refused", "Start again without pageToken.")
OVERLOADED = Kind(
    "overloaded",
    429,
    "The service has too much to do",
    "Send it again after the seconds in Retry-After, and fewer at once.",
)
NOT_READY = Kind("not_ready", 503, "Something that is needed cannot be reached", "Try again in a moment.")
BROKEN = Kind(
    "internal_error", 500, "The request failed on our side", "Try again; report the requestId if it stays."
)


class Problem(Exception):
    """A refusal on its way to the caller. `extra` holds further members of the document."""

    def __init__(
        self,
        kind: Kind,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        what_to_do: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.what_to_do = what_to_do or kind.what_to_do
        self.extra = dict(extra or {})


def require_same_id(field: str, given: str | None, in_path: str) -> None:
    """A body may repeat the id of its path, as files do; another one is a mistake."""
    if given is None or given == in_path:
        return
    message = f"it differs from the path, which names {in_path!r}"
    error = FieldProblem(field=field, where="body", value=given, allowed=in_path, message=message)
    raise Problem(INVALID, f"body {field} is {given}; allowed is {in_path}, as in the path", errors=[error])


class Refused(HTTPException):
    """A problem raised where only the framework's own exceptions come through: while it reads a body."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.kind.status, problem.detail)
        self.problem = problem


def document_of(request: Request, problem: Problem) -> dict[str, Any]:
    """The document of one refusal, as plain JSON."""
    kind = problem.kind
    document = ProblemDocument(
        type=f"urn:sco:problem:{kind.reason.replace('_', '-')}",
        title=kind.title,
        status=kind.status,
        detail=problem.detail,
        instance=quote(request.url.path),
        reason=kind.reason,
        what_to_do=problem.what_to_do,
        request_id=getattr(request.state, "request_id", None),
        errors=problem.errors,
    )
    return document.model_dump(mode="json", by_alias=True) | problem.extra


def respond(request: Request, problem: Problem) -> Response:
    return JSONResponse(
        document_of(request, problem),
        status_code=problem.kind.status,
        headers=problem.headers,
        media_type=MEDIA_TYPE,
    )


def of_status(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    """The problem for a refusal that the framework raised with a bare status."""
    known = {404: NO_SUCH_ROUTE, 405: WRONG_METHOD, 400: UNREADABLE, 413: TOO_LARGE, 415: WRONG_MEDIA_TYPE}
    kind = known.get(status)
    if kind is None:
        title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "The request was refused"
        kind = CLIENT_ERROR._replace(status=status, title=title)
    return Problem(kind, detail, headers=headers)

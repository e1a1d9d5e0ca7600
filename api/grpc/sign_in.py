"""Who calls: the bearer token in the metadata of a call, and what the method needs of its subject."""

from __future__ import annotations

from hashlib import sha256

import structlog
from grpc import StatusCode

from api.grpc.calls import Call, Pairs, Refused
from api.grpc.ports import Verifier
from api.sign_in.guard import SignInMetrics
from api.sign_in.principal import Need, Principal, lacking
from api.sign_in.refusal import Reason, TokenRefused

AUTHORIZATION = "authorization"
# One text for every bad token: what is wrong with it helps whoever tries tokens out.
UNAUTHENTICATED = (
    "the call needs metadata `authorization: Bearer <token>` with a token of this service's issuer that is"
    " valid now"
)
# So many tokens' tenants are remembered; no more are in use at a time.
MOST_KNOWN = 10_000
log = structlog.get_logger("grpc")


class Callers:
    """Tells one caller from another. Refusals are counted and logged with their reason."""

    def __init__(self, verifier: Verifier, metrics: SignInMetrics) -> None:
        self._verifier = verifier
        self._metrics = metrics
        self._tenants: dict[bytes, str] = {}

    def tenant_of(self, metadata: Pairs) -> str | None:
        """Whose token this is, where it was good before. Enough to refuse a call by, and for nothing else."""
        try:
            return self._tenants.get(_mark(_token(metadata)))
        except TokenRefused:
            return None

    def _remember(self, token: str, tenant_id: str) -> None:
        self._tenants[_mark(token)] = tenant_id
        if len(self._tenants) > MOST_KNOWN:
            del self._tenants[next(iter(self._tenants))]

    async def principal_of(self, call: Call, need: Need) -> Principal:
        """Who calls; `Refused` without a good token, or where the principal may not do this."""
        try:
            token = _token(call.metadata)
            principal = await self._verifier.verify(token)
        except TokenRefused as refused:
            self._metrics.refused(refused.reason)
            log.info("sign_in_refused", reason=refused.reason.value, request_id=call.request_id)
            raise Refused(StatusCode.UNAUTHENTICATED, UNAUTHENTICATED) from None
        if not principal.allows(need):
            self._metrics.refused(Reason.NOT_ALLOWED)
            raise Refused(StatusCode.PERMISSION_DENIED, lacking(principal, need))
        self._remember(token, principal.tenant_id)
        return principal


def _mark(token: str) -> bytes:
    """What a token is known by, so that none is kept."""
    return sha256(token.encode()).digest()


def _token(metadata: Pairs) -> str:
    """The token, where there is exactly one `authorization` of the bearer scheme."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    if not values:
        raise TokenRefused(Reason.MISSING)
    if len(values) != 1 or not isinstance(values[0], str):
        raise TokenRefused(Reason.MALFORMED)
    scheme, _, token = values[0].partition(" ")
    if scheme.lower() != "bearer":
        raise TokenRefused(Reason.MALFORMED)
    return token.strip()

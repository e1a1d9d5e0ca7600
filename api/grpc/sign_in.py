"""Who calls: the bearer token in the metadata of a call, and what the method needs of its subject."""

from __future__ import annotations

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
log = structlog.get_logger("grpc")


class Callers:
    """Tells one caller from another. Refusals are counted and logged with their reason."""

    def __init__(self, verifier: Verifier, metrics: SignInMetrics) -> None:
        self._verifier = verifier
        self._metrics = metrics

    async def principal_of(self, call: Call, need: Need) -> Principal:
        """Who calls; `Refused` without a good token, or where the principal may not do this."""
        try:
            principal = await self._verifier.verify(_token(call.metadata))
        except TokenRefused as refused:
            self._metrics.refused(refused.reason)
            log.info("sign_in_refused", reason=refused.reason.value, request_id=call.request_id)
            raise Refused(StatusCode.UNAUTHENTICATED, UNAUTHENTICATED) from None
        if not principal.allows(need):
            self._metrics.refused(Reason.NOT_ALLOWED)
            raise Refused(StatusCode.PERMISSION_DENIED, lacking(principal, need))
        return principal


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

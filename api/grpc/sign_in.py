"""Who calls: the bearer token in the metadata of a call, and what the method needs of its subject."""

from __future__ import annotations

from grpc import StatusCode

from api.grpc.calls import Pairs, Refused
from api.grpc.ports import Verifier
from api.sign_in.principal import Need, Principal, lacking
from api.sign_in.refusal import Reason, TokenRefused

AUTHORIZATION = "authorization"
# One text for every bad token: what is wrong with it helps whoever tries tokens out.
UNAUTHENTICATED = (
    "the call needs metadata `authorization: Bearer <token>` with a token of this service's issuer that is"
    " valid now"
)


async def signed_in(verifier: Verifier, metadata: Pairs, need: Need) -> Principal:
    """The principal of a call; `Refused` without a good token, or where it may not do this."""
    try:
        principal = await verifier.verify(_token(metadata))
    except TokenRefused:
        raise Refused(StatusCode.UNAUTHENTICATED, UNAUTHENTICATED) from None
    if not principal.allows(need):
        raise Refused(StatusCode.PERMISSION_DENIED, lacking(principal, need))
    return principal


def _token(metadata: Pairs) -> str:
    """The token, where there is exactly one `authorization` of the bearer scheme."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    scheme, _, token = (
        values[0].partition(" ") if len(values) == 1 and isinstance(values[0], str) else ("",) * 3
    )
    if scheme.lower() != "bearer":
        raise TokenRefused(Reason.MALFORMED if values else Reason.MISSING)
    return token.strip()

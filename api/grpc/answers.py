"""Decisions of the rules as the messages that callers get."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from activities.model_placing import Placed
from domain.serving import record
from domain.serving.placing import PlacementOutcome
from store.model_placements import StoredPlacement
from store.tables import PlacementState
from wire.proto import control_pb2 as pb

OUTCOMES = {
    PlacementOutcome.PLACED: pb.PLACEMENT_OUTCOME_PLACED,
    PlacementOutcome.NO_CAPACITY: pb.PLACEMENT_OUTCOME_NO_CAPACITY,
    PlacementOutcome.POLICY_DENIED: pb.PLACEMENT_OUTCOME_POLICY_DENIED,
}
STATES = {
    PlacementState.NONE: pb.PLACEMENT_STATE_NONE,
    PlacementState.HELD: pb.PLACEMENT_STATE_HELD,
    PlacementState.RELEASED: pb.PLACEMENT_STATE_RELEASED,
    PlacementState.EXPIRED: pb.PLACEMENT_STATE_EXPIRED,
}


def place_response(placed: Placed) -> pb.PlaceResponse:
    """The whole decision, with every candidate."""
    known = placed.record
    candidates = list(record.candidates(known.candidates, known.tenant_id))
    answer = pb.PlaceResponse(
        placement_id=str(known.placement_id),
        outcome=OUTCOMES[known.outcome],
        state=STATES[known.state],
        endpoint_ref=placed.endpoint_ref or "",
        warm=known.warm,
        cold_start_seconds=known.cold_start_seconds,
        candidates=[_candidate(one) for one in candidates],
        text=_text(known, candidates),
        problem=known.problem or "",
    )
    if known.pool_id is not None:
        answer.pool.tenant_id = known.pool_tenant_id or ""
        answer.pool.pool_id = known.pool_id
    if known.expires_at is not None:
        answer.expires_at.CopyFrom(timestamp(known.expires_at))
    if placed.credential is not None:
        answer.credential.token = placed.credential.token.get_secret_value()
        answer.credential.expires_at.CopyFrom(timestamp(placed.credential.expires_at))
    return answer


def renew_response(known: StoredPlacement) -> pb.RenewResponse:
    return pb.RenewResponse(
        placement_id=str(known.placement_id),
        state=STATES[known.state],
        expires_at=None if known.expires_at is None else timestamp(known.expires_at),
        problem=known.problem or "",
    )


def release_response(known: StoredPlacement) -> pb.ReleaseResponse:
    return pb.ReleaseResponse(
        placement_id=str(known.placement_id),
        state=STATES[known.state],
        ended_at=None if known.ended_at is None else timestamp(known.ended_at),
    )


def timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _candidate(one: record.Candidate) -> pb.Candidate:
    return pb.Candidate(
        pool=pb.Pool(tenant_id=one.tenant_id, pool_id=one.pool_id),
        chosen=one.kept,
        reason=one.reason.value if one.reason else "",
        text=one.text,
        score="" if one.score is None else f"{one.score:f}",
    )


def _text(known: StoredPlacement, candidates: list[record.Candidate]) -> str:
    """The decision in a sentence, with how many pools each reason left out."""
    counted = Counter(one.reason.value for one in candidates if one.reason)
    left_out = ", ".join(f"{count} for {reason}" for reason, count in counted.items()) or "none"
    cold = None if known.warm else known.cold_start_seconds
    decided = record.in_a_sentence(known.outcome, known.model, known.pool_id, cold)
    return f"{decided}; left out: {left_out}"

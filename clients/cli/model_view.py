"""Placements of models on the screen: the chosen pool, and why not the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from clients.cli.model_answers import (
    EndpointCredential,
    ModelCandidate,
    ModelDecision,
    ModelPlacement,
    PlacedModel,
    PlacementState,
    ScoreParts,
)
from clients.cli.screen import Screen, figures, names, prose, spare
from clients.cli.texts import moment, number

_LIST_COLUMNS = (
    *names("PLACEMENT", "MODEL"),
    *figures("GB"),
    *names("OUTCOME", "STATE", "POOL", "START", "HELD UNTIL"),
    *spare(*names("DEPLOYMENT", "DECIDED")),
)
_SCORED_COLUMNS = (
    *names("POOL", "VERDICT"),
    *figures("SCORE", "WARM", "PRICE", "UTILIZATION", "LATENCY", "START s", "USD/h"),
    *spare(*names("TENANT")),
)
_LEFT_OUT_COLUMNS = (
    *names("POOL", "LEFT OUT FOR"),
    *figures("USD/h"),
    *prose("BECAUSE"),
    *spare(*names("TENANT")),
)
_REASON_COLUMNS = (*figures("POOLS"), *names("LEFT OUT FOR"), *prose("BECAUSE"), *names("CHEAPEST OF THEM"))


def placed(screen: Screen, one: PlacedModel, *, show_credential: bool) -> None:
    """The answer to a request: where to send requests, and why not the other pools."""
    _heading(screen, one)
    pairs = _facts(one)
    if one.endpoint_ref is not None:
        pairs.append(("endpoint", one.endpoint_ref))
        pairs += _credential(one.credential, show_token=show_credential)
    screen.facts(pairs)
    _by_reason(screen, one)


def decision(screen: Screen, one: ModelDecision, shown: Sequence[ModelCandidate]) -> None:
    """A placement as it stands now, with candidates of it."""
    _heading(screen, one)
    screen.facts(_facts(one))
    candidates(screen, one.weights, shown)


def candidates(screen: Screen, weights: ScoreParts, shown: Sequence[ModelCandidate]) -> None:
    """Those that were scored, best first, above the weights; and those that were left out before."""
    scored = [_scored(each, each.parts) for each in shown if each.parts is not None]
    if scored:
        screen.line()
        screen.table(_SCORED_COLUMNS, [*scored, ("weight", "", "", *_shares(weights), "", "", "")])
    refused = [each for each in shown if each.parts is None]
    if refused:
        screen.line()
        screen.table(_LEFT_OUT_COLUMNS, [_left_out(each) for each in refused])


def listing(screen: Screen, listed: Sequence[ModelPlacement]) -> None:
    if not listed:
        screen.note("no placement of a model found")
        return
    screen.table(
        _LIST_COLUMNS,
        [
            (
                str(one.placement_id),
                one.model,
                f"{one.requirements.vram_gb:,}",
                one.outcome,
                one.state,
                one.chosen_pool_id or "-",
                "-" if one.chosen_pool_id is None else start_text(one),
                moment(one.expires_at) if one.state == PlacementState.HELD else "-",
                one.deployment_id,
                moment(one.decided_at),
            )
            for one in listed
        ],
    )


def start_text(one: ModelPlacement) -> str:
    """Whether the model was there when it was decided, and if not, how long it was expected to load."""
    return "warm" if one.warm else f"cold, about {one.cold_start_seconds:,} s"


def state_text(one: ModelPlacement) -> str:
    """Such as `held until 2026-11-29 14:10:00Z`."""
    if one.state == PlacementState.NONE:
        return "nothing is held: no pool was chosen"
    if one.state == PlacementState.HELD:
        return f"held until {moment(one.expires_at)}"
    return f"{one.state} at {moment(one.ended_at)}"


def _heading(screen: Screen, one: ModelPlacement) -> None:
    screen.title(f"placement {one.placement_id}: {one.outcome}")
    screen.line(one.text)


def _facts(one: ModelPlacement) -> list[tuple[str, str]]:
    asked = one.requirements
    limit = asked.max_price_per_hour_usd
    price = "" if limit is None else f", at most {number(limit)} USD per hour"
    pairs = [
        (
            "asked",
            f"{asked.vram_gb:,} GB, boundary {asked.boundary} or stricter, {_regions(asked.regions)},"
            f" {asked.latency_class}{price}",
        ),
        ("for", f"deployment {one.deployment_id}" + (f", run {one.run_id}" if one.run_id else "")),
        ("decided", moment(one.decided_at)),
    ]
    if one.chosen_pool_id is not None:
        pairs.append(("pool", f"{one.chosen_pool_id} of tenant {one.chosen_pool_tenant_id}"))
        pairs.append(("start", start_text(one)))
        pairs.append(("state", state_text(one)))
    if one.problem is not None:
        pairs.append(("problem", one.problem))
    return pairs


def _regions(regions: Sequence[str]) -> str:
    return f"in {' or '.join(regions)}" if regions else "in any region"


def _credential(one: EndpointCredential | None, *, show_token: bool) -> list[tuple[str, str]]:
    """The token only where it is asked for: a screen is read by others, and scrolls into logs."""
    if one is None:
        return [("credential", "none: the endpoint takes requests without")]
    if show_token:
        return [("credential", one.token), ("expires", moment(one.expires_at))]
    return [("credential", f"expires at {moment(one.expires_at)}; --show-credential prints it")]


def _scored(one: ModelCandidate, parts: ScoreParts) -> tuple[str, ...]:
    return (
        one.pool_id,
        one.reason or "chosen",
        number(one.score or 0, 4),
        *_shares(parts),
        f"{one.start_seconds or 0:,}",
        number(one.price_per_hour_usd),
        one.tenant_id,
    )


def _left_out(one: ModelCandidate) -> tuple[str, ...]:
    price = number(one.price_per_hour_usd)
    return one.pool_id, one.reason or "unknown", price, one.text, one.tenant_id


def _shares(parts: ScoreParts) -> tuple[str, ...]:
    return tuple(number(each, 4) for each in (parts.warm, parts.price, parts.utilization, parts.latency))


def _by_reason(screen: Screen, one: ModelDecision) -> None:
    """Why not the others, the commonest reason first; each with the pool that would have cost least."""
    found: dict[str, list[ModelCandidate]] = defaultdict(list)
    for each in one.candidates:
        if each.reason is not None:
            found[each.reason].append(each)
    if not found:
        return
    screen.line()
    screen.table(
        _REASON_COLUMNS,
        [
            (f"{len(left):,}", reason, left[0].text, _cheapest(left))
            for reason, left in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        ],
    )


def _cheapest(left: Sequence[ModelCandidate]) -> str:
    one = min(left, key=lambda each: (each.price_per_hour_usd, each.pool_id))
    return f"{one.pool_id}, {number(one.price_per_hour_usd)} USD/h"

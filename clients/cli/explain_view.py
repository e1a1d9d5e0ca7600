"""A decision on the screen: the pools it kept, and why not the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from clients.cli.answers import Candidate, Explanation, Replay
from clients.cli.screen import Screen, figures, names, prose, spare
from clients.cli.texts import count, moment, money, number, percent, rate
from clients.cli.workload_view import shortfall_text
from domain.intake.words import some
from domain.pool import PurchaseModel

_COLUMNS = (
    *figures("RANK"),
    *names("POOL"),
    *figures("USD/h", "DISCOUNT", "INTERRUPTIONS/h"),
    *spare(*names("MODEL", "HALL", "GROUP")),
)


def show(screen: Screen, decision: Explanation) -> None:
    """The whole decision: its terms, the pools it kept, and the others by reason."""
    _heading(screen, decision)
    kept = [one for one in decision.candidates if one.kept]
    if kept:
        screen.line()
        screen.table(
            (*figures("UNITS", "INSTANCES"), *_COLUMNS),
            [(f"{one.units:,}", f"{one.instances:,}", *_row(one)) for one in kept],
        )
    _by_reason(screen, [one for one in decision.candidates if not one.kept])


def show_reason(screen: Screen, decision: Explanation, reason: str) -> None:
    """Every pool that was left out for one reason."""
    found = [one for one in decision.candidates if one.reason == reason]
    if not found:
        screen.note(f"generation {decision.generation} left no pool out for {reason}")
        return
    screen.line(f"{count(len(found), 'pool')} left out for {reason}: {found[0].text}")
    screen.line()
    screen.table(_COLUMNS, [_row(one) for one in found])


def show_pool(screen: Screen, decision: Explanation, one: Candidate) -> None:
    """One sentence, then the figures that it rests on."""
    verdict = "kept" if one.kept else f"left out ({one.reason})"
    screen.line(f"{one.pool_id} was {verdict}: {one.text}.")
    price = number(one.price_per_hour_usd)
    screen.facts(
        [
            ("decision", f"generation {decision.generation}, {moment(decision.decided_at)}"),
            ("place", _place(one)),
            (
                "price",
                f"{price} USD, {percent(one.discount_share)} below the guaranteed rate",
            ),
            ("interruptions", _interruptions(one)),
            ("where", f"{one.region}, {one.hall}, group {one.group_id}, {one.purchase_model}"),
        ]
    )


def _place(one: Candidate) -> str:
    if one.rank is None:
        return "none: it cannot serve this claim"
    return f"{one.rank:,} in the order of {one.purchase_model} pools"


def _interruptions(one: Candidate) -> str:
    if one.purchase_model != PurchaseModel.RECLAIMABLE:
        return "none: its instances are not taken back"
    assumed = "" if one.history_known else ", assumed: too little history"
    return f"{rate(one.interruptions_per_hour)} per hour{assumed}"


def show_replay(screen: Screen, replay: Replay) -> None:
    if replay.same:
        screen.line(f"generation {replay.generation} decided again: the same")
        return
    found = len(replay.differences) + replay.omitted
    screen.line(f"generation {replay.generation} decided again: {count(found, 'difference')}")
    screen.table(
        (*names("PART"), *prose("STORED", "DECIDED AGAIN")),
        [(one.part, one.stored, one.recomputed) for one in replay.differences],
    )
    if replay.omitted:
        screen.line(f"and {replay.omitted:,} more")


def _heading(screen: Screen, decision: Explanation) -> None:
    screen.title(
        f"workload {decision.workload_id}, generation {decision.generation}:"
        f" {decision.placed_units:,} of {count(decision.units, 'unit')} placed"
    )
    facts = [
        ("decided", f"{moment(decision.decided_at)}, for claim {decision.claim_version}"),
        ("outcome", decision.outcome),
        ("ranking", decision.ranking_id),
        (
            "caps",
            f"floor {decision.floor_units:,} units, at most {decision.pool_cap_units:,} per pool"
            f" and {decision.group_cap_units:,} per correlation group",
        ),
        (
            "cost",
            f"{money(decision.cost_per_hour)} per hour,"
            f" {money(decision.depth_premium_per_hour)} of it for the spread",
        ),
    ]
    facts += [("shortfall", shortfall_text(one)) for one in decision.shortfalls]
    screen.facts(facts)


def _row(one: Candidate) -> tuple[str, ...]:
    frequency = rate(one.interruptions_per_hour) + ("" if one.history_known else "?")
    return (
        f"{one.rank:,}" if one.rank else "-",
        one.pool_id,
        number(one.price_per_hour_usd),
        percent(one.discount_share),
        frequency if one.purchase_model == PurchaseModel.RECLAIMABLE else "-",
        one.purchase_model,
        one.hall,
        one.group_id,
    )


def _by_reason(screen: Screen, excluded: Sequence[Candidate]) -> None:
    by_reason: dict[str, list[Candidate]] = defaultdict(list)
    for one in excluded:
        by_reason[one.reason or "unknown"].append(one)
    if not by_reason:
        return
    screen.line()
    screen.table(
        (*figures("POOLS"), *names("LEFT OUT FOR"), *prose("BECAUSE", "FOR EXAMPLE")),
        [
            (f"{len(pools):,}", reason, pools[0].text, some([one.pool_id for one in pools], limit=2))
            for reason, pools in sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        ],
    )

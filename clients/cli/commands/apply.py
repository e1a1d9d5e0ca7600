"""`sco apply`: pools, partitions, contracts, workloads and warm profiles from files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from clients.cli.answers import Applied, read
from clients.cli.api import Api, json_body, path
from clients.cli.failures import Failure, Missing, usage
from clients.cli.files import Document, read_documents
from clients.cli.session import checked_name, session_of
from clients.cli.warm_answers import Versioned
from domain.intake.words import is_mapping, shown

API_VERSION = "sco/v1"
IDENTITY = {
    "Pool": "poolId",
    "Partition": "partitionId",
    "Contract": "contractId",
    "Workload": "workloadId",
    "WarmProfile": "profileId",
}
"""The kinds in the order in which they are applied, each with the field that names one.

A partition needs a region that has pools, a workload its partition and its contract.
"""
POOL_KIND = "poolKind"
"""What a document calls the kind of its pool, since its `kind` says what the document is."""
PRICES = ("pricePerHourUsd", "guaranteedPricePerHourUsd")
SPOKEN = {"WarmProfile": "warm profile"}
"""Kinds of more than one word, as people say them."""


@dataclass(frozen=True, slots=True)
class Applicable:
    kind: str
    name: str
    body: dict[str, object]

    def __str__(self) -> str:
        return f"{spoken_kind(self.kind)} {self.name}"


def spoken_kind(kind: str) -> str:
    return SPOKEN.get(kind, kind.lower())


def apply(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="YAML or JSON with one or more documents; - is standard input. May be repeated.",
            show_default=False,
        ),
    ],
) -> None:
    """Apply pools, contracts, workloads and more from files.

    Kinds are Pool, Partition, Contract, Workload and WarmProfile. All documents of all files are checked
    first, then applied in this order. The first refusal ends it; what was applied stays, and applying the
    files again is safe.

    \b
    Examples:
      sco apply -f examples/contracts/orders-daily.yaml
      sco apply -f examples/partitions/k8s-eu-west.yaml
      sco apply -f examples/pools/workstation.yaml
      sco apply -f examples/warm/chat.yaml
      cat pools.yaml contracts.yaml | sco apply -f -
    """
    session = session_of(context)
    order = list(IDENTITY)
    found = [_applicable(document) for document in read_documents(files)]
    _refuse_repeats(found)
    pending = sorted(found, key=lambda one: order.index(one.kind))
    for position, one in enumerate(pending):
        try:
            said = _send(session.api, one)
            answer = read(Applied, said, spoken_kind(one.kind))
        except Failure as failure:
            raise _stopped(failure, pending, position) from None
        session.screen.line(f"{one} applied")
        for warning in (*answer.warnings, *_left_alone(one, said)):
            session.screen.note(f"warning: {warning}")


def _left_alone(one: Applicable, said: Any) -> Iterator[str]:
    """What a pool that was registered before has otherwise than its file: registering changes nothing."""
    if one.kind != "Pool" or not is_mapping(said):
        return
    for name in (*PRICES, "endpointRef"):
        if name in one.body and name in said and not _same(one.body[name], said[name]):
            yield (
                f"{name} of pool {one.name} is {shown(said[name])} as before, not {shown(one.body[name])}:"
                f" registering changes nothing, sco change pool does"
            )


def _same(wanted: object, known: object) -> bool:
    try:
        return Decimal(str(wanted)) == Decimal(str(known))
    except InvalidOperation:
        return wanted == known


def _applicable(document: Document) -> Applicable:
    kind, version = document.fields.get("kind"), document.fields.get("apiVersion")
    if version != API_VERSION:
        raise usage(f"{document.place}: apiVersion is {shown(version)}; {API_VERSION} is expected")
    if not isinstance(kind, str) or kind not in IDENTITY:
        raise usage(
            f"{document.place}: kind is {shown(kind)}; {', '.join(IDENTITY)} are expected", *_hint(kind)
        )
    field = IDENTITY[kind]
    name = document.fields.get(field)
    if not isinstance(name, str):
        raise usage(
            f"{document.place}: {field} is {shown(name)}; the name of the {spoken_kind(kind)} is expected"
        )
    try:
        checked_name(spoken_kind(kind), name)
    except Failure as failure:
        raise usage(f"{document.place}: {field}: {failure.problem}") from None
    in_path = () if kind == "Pool" else (field,)
    known = {"apiVersion", "kind", *in_path}
    body = {key: value for key, value in document.fields.items() if key not in known}
    if kind == "Pool" and POOL_KIND in body:
        body["kind"] = body.pop(POOL_KIND)
    return Applicable(kind, name, body)


def _hint(kind: object) -> list[str]:
    return ["a claim is not applied but submitted: sco claim -f FILE"] if kind == "Claim" else []


def _refuse_repeats(found: list[Applicable]) -> None:
    seen: set[tuple[str, str]] = set()
    for one in found:
        if (one.kind, one.name) in seen:
            raise usage(f"{one} is given twice: which of the two counts? keep one")
        seen.add((one.kind, one.name))


def _send(api: Api, one: Applicable) -> Any:
    body = json_body(one.body)
    if one.kind == "Pool":
        return api.post("/factory/compute-pools", body)
    if one.kind == "WarmProfile":
        where = path("factory", "warm-profiles", one.name)
        return api.put(where, body, if_match=_tag_at(api, where))
    return api.put(path(f"{one.kind.lower()}s", one.name), body)


def _tag_at(api: Api, where: str) -> str | None:
    """The tag of what is there now; None where nothing is."""
    try:
        return f'"{read(Versioned, api.get(where), where).version}"'
    except Missing:
        return None


def _stopped(failure: Failure, pending: list[Applicable], position: int) -> Failure:
    applied = ", ".join(map(str, pending[:position])) or "nothing"
    left = ", ".join(map(str, pending[position:]))
    return Failure(
        failure.code,
        f"{pending[position]}: {failure.problem}",
        (*failure.hints, f"applied: {applied}", f"not applied: {left}"),
    )

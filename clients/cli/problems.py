"""Answers of any server, well behaved or not: a document, a page of a listing, or a `Failure`."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import httpx2
from pydantic import ValidationError

from clients.cli.answers import Answer, LeftOut, Unreadable
from clients.cli.failures import Exit, Failure, Missing, unreachable
from domain.intake.words import clean, is_mapping, shown

MAX_ERRORS = 20
_MAX_SHOWN = 300
_SERVER_ERRORS = 500
_CLIENT_ERRORS = 400
_OTHER_SERVER = "is this the address of the orchestrator's API? name it with --server or SCO_SERVER"
_IN_WORDS_OF_SCO = {
    "invalid_request": "",
    "not_signed_in": "",
    "invalid_token": "",
    "no_such_route": _OTHER_SERVER,
    "no_such_step": "",
    "no_claim": "send one with `sco claim -f FILE`",
    "not_slurm": "`sco get partitions` says which scheduler each has",
    "unknown_contract": "",
    "unknown_drain": "`sco drains` lists the nodes that drained",
    "unknown_partition": "`sco get partitions` lists those that exist; `sco apply -f FILE` creates one",
    "unknown_placement": "list them with `sco get model-placements`, or `sco get generations WORKLOAD`",
    "unknown_pool": "",
    "unknown_workload": "create one with `sco apply -f FILE`",
    "version_conflict": "look at it again, and give the version that it has now",
}
"""What to do, by reason, where the server speaks of paths and headers. Nothing where the rest says it all."""


class FieldProblem(Answer):
    field: str = ""
    value: str | None = None
    allowed: str = ""
    message: str = ""


class Problem(Answer):
    """What the server says of a refusal (RFC 9457). Everything may be missing."""

    title: str = ""
    reason: str = ""
    detail: str = ""
    what_to_do: str = ""
    request_id: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()


def document_of(response: httpx2.Response, content: bytes, server: str) -> Any:
    """The JSON of a good answer; None for an empty one."""
    if not content.strip():
        return None
    try:
        return json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise unreachable(
            f"{server} answered {_kind(response)} where JSON is expected: {_start(content)}", _OTHER_SERVER
        ) from None


def page_of(answer: Any, where: str) -> tuple[list[Any], str | None]:
    """The items of one page, and the token of the next."""
    if is_mapping(answer):
        items, token = answer.get("items"), answer.get("nextPageToken")
        if isinstance(items, list) and (token is None or isinstance(token, str)):
            return items, token or None
    raise unreachable(
        f"the server's list at {where} is not as expected: {shown(answer)} without items", _OTHER_SERVER
    )


def failure_of(response: httpx2.Response, content: bytes, server: str) -> Failure:
    """What an answer with a status other than success means for the caller."""
    status = response.status_code
    if status < _CLIENT_ERRORS:
        target = clean(response.headers.get("location", "nowhere"), _MAX_SHOWN)
        return unreachable(f"{server} sends on to {target} (status {status})", _OTHER_SERVER)
    problem = _problem(content)
    code = Exit.REFUSED if status < _SERVER_ERRORS else Exit.UNREACHABLE
    if problem is None:
        return Failure(
            code, f"{server} answered {status} with {_kind(response)}: {_start(content)}", (_OTHER_SERVER,)
        )
    said = problem.detail or problem.title
    kind = Missing if status == httpx2.codes.NOT_FOUND else Failure
    return kind(code, clean(said, _MAX_SHOWN * 4), tuple(_hints(problem, response)))


def _problem(content: bytes) -> Problem | None:
    try:
        problem = Problem.model_validate(json.loads(content))
    except (ValidationError, ValueError, RecursionError):
        return None
    return problem if problem.detail or problem.title else None


def _hints(problem: Problem, response: httpx2.Response) -> list[str]:
    hints = [
        _field_hint(one, problem.detail)
        for one in problem.errors[:MAX_ERRORS]
        if _field_hint(one, problem.detail) not in problem.detail
    ]
    hints += [f"unreadable: {one.name}: {one.problem}" for one in problem.unreadable]
    hints += [f"left out: {one.name}: {one.detail or one.reason}" for one in problem.left_out[:MAX_ERRORS]]
    if to_do := _IN_WORDS_OF_SCO.get(problem.reason, problem.what_to_do):
        hints.append(f"what to do: {to_do}")
    if response.headers.get("retry-after", "").isdigit():
        hints.append(f"try again in {response.headers['retry-after']} seconds")
    if problem.request_id:
        hints.append(f"request id: {problem.request_id}")
    return hints


def _field_hint(error: FieldProblem, detail: str) -> str:
    allowed = f"allowed is {error.allowed or error.message}"
    if error.value is None and detail.startswith(f"{error.field}:"):
        return allowed
    value = "is missing" if error.value is None else f"is {error.value}"
    return f"{error.field} {value}; {allowed}"


def _kind(response: httpx2.Response) -> str:
    media = response.headers.get("content-type", "").partition(";")[0].strip()
    return {"text/html": "a web page", "": "something"}.get(media, clean(media, _MAX_SHOWN))


def _start(content: bytes) -> str:
    words = " ".join(content[:_MAX_SHOWN].decode("utf-8", "replace").split())
    return clean(words) if words else "nothing"


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON")

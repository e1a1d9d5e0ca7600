"""Pages from templates: everything that is put into one is escaped."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from api.problems import Problem
from api.sign_in.principal import Need, Principal

_TEMPLATES = Path(__file__).parent / "templates"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
NONE = "-"
# What a person does whose page was older than what it showed.
LOOK_AGAIN = "This page shows it as it is now. Ask again if you still want it."
SIGN_IN_PATHS = ("/sign-in", "/sign-out")


def is_screen(request: Request) -> bool:
    """Whether a person's page was asked for; everything else is for programs."""
    path = request.url.path
    return is_own_page(path) or path.startswith(SIGN_IN_PATHS)


def is_own_page(path: str) -> bool:
    """Whether this is the path of one of the screens behind the sign-in."""
    return path == "/" or path.startswith("/ui/")


def may(request: Request, need: Need) -> bool:
    """Whether whoever looks at a page may do what needs this: what they may not do is not offered."""
    principal: Principal | None = getattr(request.state, "principal", None)
    return principal is not None and principal.allows(need)


def page(request: Request, template: str, *, status_code: int = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    """One page. `values` are what its template names."""
    text = _environment.get_template(template).render(
        path=request.url.path, principal=getattr(request.state, "principal", None), **values
    )
    return HTMLResponse(text, status_code=status_code, headers={"Cache-Control": "no-store"})


def problem_page(request: Request, problem: Problem) -> HTMLResponse:
    """A refusal for a person, with the same content as the document for programs."""
    request_id = getattr(request.state, "request_id", None)
    response = page(
        request, "problem.html", status_code=problem.kind.status, problem=problem, request_id=request_id
    )
    response.headers.update(problem.headers)
    return response


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago, in the largest unit that fits."""
    return "never" if at is None else f"{age(at, now)} ago"


def age(at: datetime, now: datetime) -> str:
    """The time from one moment to another, in the largest unit that fits."""
    return span(int((now - at).total_seconds()))


def ahead(at: datetime | None, now: datetime) -> str:
    """In how long, in the largest unit that fits."""
    if at is None:
        return NONE
    return f"in {age(now, at)}" if at > now else ago(at, now)


def span(seconds: int | None) -> str:
    if seconds is None:
        return NONE
    seconds = max(0, seconds)
    for size, word in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= size:
            return f"{seconds // size} {word}"
    return f"{seconds} s"


def moment(at: datetime | None) -> str:
    return NONE if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def percent(share: Decimal | None) -> str:
    """A share between 0 and 1, as people read it."""
    return NONE if share is None else f"{share * 100:.1f} %"


def price(amount: Decimal | None) -> str:
    return NONE if amount is None else f"{amount:.4f}"


def rate(amount: Decimal | None) -> str:
    return NONE if amount is None else f"{amount:.3f}"


def figure(amount: float) -> str:
    """A count that may have a fraction, without needless zeros."""
    return f"{amount:,.3f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def clock(text: str) -> str:
    """`22:00` of `22:00:00`; other seconds stay."""
    return text.removesuffix(":00") if text.count(":") > 1 else text


def since_notice(seconds: float | None) -> str:
    """`T+1.40`: seconds from the notice."""
    return NONE if seconds is None else f"T{seconds:+.2f}"


def exact_seconds(seconds: float | None) -> str:
    """Seconds to a tenth."""
    return NONE if seconds is None else f"{seconds:,.1f} s"


def words(code: str | None) -> str:
    """A fixed word of the API, as people read it."""
    return NONE if code is None else str(code).replace("_", " ")


def _new_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": ago,
        "age": age,
        "ahead": ahead,
        "span": span,
        "moment": moment,
        "percent": percent,
        "price": price,
        "rate": rate,
        "words": words,
        "since_notice": since_notice,
        "exact_seconds": exact_seconds,
        "figure": figure,
        "counted": counted,
        "clock": clock,
    }
    return made


_environment = _new_environment()

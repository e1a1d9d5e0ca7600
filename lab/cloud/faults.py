"""Ways the cloud can be told to misbehave: rules that match requests and fire a fault."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from domain.model import Frozen


class FaultKind(StrEnum):
    """What goes wrong. The kinds from `quota_exceeded` on apply to creates only."""

    RATE_LIMITED = "rate_limited"
    ERROR_BEFORE = "error_before"
    ERROR_AFTER = "error_after"
    TIMEOUT_BEFORE = "timeout_before"
    TIMEOUT_AFTER = "timeout_after"
    DROPPED_BEFORE = "dropped_before"
    DROPPED_AFTER = "dropped_after"
    LIST_PAGE_ERROR = "list_page_error"
    QUOTA_EXCEEDED = "quota_exceeded"
    NO_VALID_HOST = "no_valid_host"
    NO_QUOTA_LATER = "no_quota_later"
    BUILD_ERROR = "build_error"
    STUCK_BUILD = "stuck_build"
    NOT_CREATED = "not_created"


CREATE_KINDS = frozenset(
    {
        FaultKind.QUOTA_EXCEEDED,
        FaultKind.NO_VALID_HOST,
        FaultKind.NO_QUOTA_LATER,
        FaultKind.BUILD_ERROR,
        FaultKind.STUCK_BUILD,
        FaultKind.NOT_CREATED,
    }
)


class FaultRule(Frozen):
    """Which requests to hit, and how.

    A matcher at None matches everything in the regions; `path` and `query` are regular expressions, and
    only a rule that gives a path can hit the identity service. `flavor` (a name) and `hall` match creates
    only. The rule skips the first `after` matching requests, then fires for each with
    `probability`, at most `times` times (None: always).

    `status` is the answer of the error kinds, `retry_after_seconds` that of `rate_limited`.
    A timeout keeps silent for `delay_seconds` of real time, then answers 504; a dropped request loses
    its connection. `no_quota_later` accepts a create and finds it too many when hosts were found, which
    is when Nova counts again. Of a multi-create, the last `count` servers are hit
    (None: all of them).
    """

    kind: FaultKind
    method: str | None = None
    path: str | None = None
    query: str | None = None
    region: str | None = None
    flavor: str | None = None
    hall: str | None = None
    times: Annotated[int, Field(ge=1)] | None = 1
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    after: Annotated[int, Field(ge=0)] = 0
    status: Annotated[int, Field(ge=500, le=599)] = 503
    retry_after_seconds: Annotated[int, Field(ge=0)] = 1
    delay_seconds: Annotated[float, Field(ge=0, le=600)] = 60.0
    count: Annotated[int, Field(ge=1)] | None = None

    @field_validator("path", "query")
    @classmethod
    def _is_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"{info.field_name} {pattern!r} is not a regular expression: {error}") from error
        return pattern


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a rule can know about a request. `flavor` and `hall` are those of a create."""

    method: str
    path: str
    region: str | None = None
    is_create: bool = False
    is_later_page: bool = False
    flavor: str | None = None
    hall: str | None = None
    query: str = ""


@dataclass(slots=True)
class ArmedRule:
    """A rule in force, with how often it was met and how often it fired."""

    rule_id: int
    rule: FaultRule
    matched: int = 0
    fired: int = 0

    def meets(self, facts: RequestFacts) -> bool:
        rule = self.rule
        if rule.kind in CREATE_KINDS and not facts.is_create:
            return False
        if rule.kind is FaultKind.LIST_PAGE_ERROR and not facts.is_later_page:
            return False
        if rule.path is None and facts.region is None:
            return False
        return (
            rule.method in (None, facts.method)
            and rule.region in (None, facts.region)
            and rule.flavor in (None, facts.flavor)
            and rule.hall in (None, facts.hall)
            and (rule.path is None or re.search(rule.path, facts.path) is not None)
            and (rule.query is None or re.search(rule.query, facts.query) is not None)
        )

    @property
    def spent(self) -> bool:
        return self.rule.times is not None and self.fired >= self.rule.times


@dataclass(slots=True)
class FaultPlan:
    """All rules, in the order they were added. The first that fires decides the request."""

    rng: random.Random
    _rules: list[ArmedRule] = field(default_factory=list)
    _next_id: int = 1

    def add(self, rule: FaultRule) -> int:
        armed = ArmedRule(self._next_id, rule)
        self._next_id += 1
        self._rules.append(armed)
        return armed.rule_id

    def clear(self) -> None:
        self._rules.clear()

    def remove(self, rule_id: int) -> bool:
        kept = [armed for armed in self._rules if armed.rule_id != rule_id]
        removed = len(kept) < len(self._rules)
        self._rules = kept
        return removed

    def rules(self) -> tuple[ArmedRule, ...]:
        return tuple(self._rules)

    def fire(self, facts: RequestFacts) -> FaultRule | None:
        """The rule that hits this request, counted as fired, or None."""
        for armed in self._rules:
            if armed.spent or not armed.meets(facts):
                continue
            armed.matched += 1
            if armed.matched <= armed.rule.after or self.rng.random() >= armed.rule.probability:
                continue
            armed.fired += 1
            return armed.rule
        return None

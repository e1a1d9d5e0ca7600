"""The one gate to the wire: whatever is sent to the provider passes here, and costs a token."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from activities.openstack.budget import NotSent
from activities.openstack.errors import retry_after_seconds
from activities.openstack.metrics import ProviderMetrics
from activities.ports import ProviderError, TokenBudget
from domain.circuit import Outcome

_THROTTLED = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.TOO_MANY_REQUESTS)


class BudgetAdapter(HTTPAdapter):
    """Takes a token of its region before each request: logins, discovery, pages and redirects alike.

    How each request ended is reported to the budget, which tells everybody when the region is unwell. It
    never retries, and no caller can wait longer than its time limits.
    """

    def __init__(
        self,
        region: str,
        budget: TokenBudget,
        metrics: ProviderMetrics,
        *,
        timeout_seconds: tuple[float, float],
        max_connections: int,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(pool_connections=max_connections, pool_maxsize=max_connections, max_retries=0)
        self._region = region
        self._budget = budget
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._now = now

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        """Send one request. ProviderError when there is no token: then nothing was sent.

        A caller's `timeout` is ignored in favour of the configured connect and read limits.
        """
        self._take_token()
        try:
            response = super().send(request, **{**options, "timeout": self._timeout_seconds})
        except requests.RequestException as error:
            timed_out = isinstance(error, requests.Timeout)
            self._ended(Outcome.TIMEOUT if timed_out else Outcome.UNREACHABLE, None)
            raise
        outcome = _outcome(response.status_code)
        throttled = outcome is Outcome.THROTTLED
        self._ended(outcome, retry_after_seconds(response, self._now()) if throttled else None)
        return response

    def _ended(self, outcome: Outcome, asked_seconds: float | None) -> None:
        self._metrics.called(self._region, outcome)
        self._budget.report(self._region, outcome, asked_seconds)

    def _take_token(self) -> None:
        try:
            self._budget.take(self._region)
        except ProviderError as error:
            self._metrics.called(
                self._region, error.outcome if isinstance(error, NotSent) else Outcome.NO_BUDGET
            )
            raise


def _outcome(status: int) -> Outcome:
    if status in _THROTTLED:
        return Outcome.THROTTLED
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.FAILED
    return Outcome.REFUSED if status >= HTTPStatus.BAD_REQUEST else Outcome.OK

"""How the provider's own tools ask a running relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import httpx2

from lab.relay.decisions import Decision, Decisions, Withdrawals
from wire.notices import Notice

TIMEOUT_SECONDS = 30.0


class RelayRefused(Exception):
    """The relay did not do what was asked, or does not answer. The text is for a person."""


class RelayClient:
    """Calls of one relay. Every method raises RelayRefused."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base_url = base_url
        self._http = httpx2.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )

    def decide(self, decisions: Sequence[Decision]) -> tuple[Notice, ...]:
        body = Decisions(decisions=tuple(decisions)).model_dump(mode="json", by_alias=True)
        return _notices(self._call("POST", "/reclaims", body))

    def withdraw(self, notice_ids: Sequence[UUID], reason: str = "") -> tuple[Notice, ...]:
        """The withdrawals; a notice that no longer stands is refused by name."""
        body = Withdrawals(notice_ids=tuple(notice_ids), reason=reason).model_dump(mode="json", by_alias=True)
        answer = self._call("POST", "/withdrawals", body)
        if answer["unknown"]:
            raise RelayRefused(f"no standing notice has the id {', '.join(answer['unknown'])}")
        return _notices(answer)

    def standing(self) -> tuple[Notice, ...]:
        return _notices(self._call("GET", "/notices"))

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body)
            answer: dict[str, Any] = response.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise RelayRefused(f"the notice relay at {self._base_url} does not answer: {error}") from error
        if response.is_error:
            raise RelayRefused(f"the notice relay refused: {answer.get('error')}")
        return answer


def _notices(answer: dict[str, Any]) -> tuple[Notice, ...]:
    return tuple(Notice.model_validate(one) for one in answer["notices"])

"""The provider's own endpoints: rate card, forward capacity and the state of its halls."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from domain.pool import PurchaseModel
from lab.cloud.capacity import HostGroup
from lab.cloud.estate import calendar_peak, guaranteed_price
from lab.cloud.region import Region
from lab.cloud.web.respond import Handler, json, plain_error, route
from lab.cloud.web.server_view import iso_time

CURRENCY = "USD"
FORWARD_HOURS = 24


@dataclass(frozen=True, slots=True)
class RatesApi:
    """Prices, capacity and halls of one region. Prices are USD per instance and hour."""

    region: Region

    def routes(self) -> list[BaseRoute]:
        table: tuple[tuple[str, Handler, str], ...] = (
            ("/v1/rate-card", self.rate_card, "GET"),
            ("/v1/forward-capacity", self.forward_capacity, "GET"),
            ("/v1/halls", self.halls, "GET"),
        )
        return [route(path, handler, method, plain_error) for path, handler, method in table]

    def rate_card(self, request: Request) -> Response:
        rates = [
            {
                **_place(group),
                "price_per_hour": str(self.region.prices[group.name]),
                "guaranteed_price_per_hour": str(
                    guaranteed_price(self.region.name, group.plan.sku, group.plan.size)
                ),
            }
            for group in self.region.groups.values()
        ]
        return self._answer("rates", rates, {"currency": CURRENCY})

    def forward_capacity(self, request: Request) -> Response:
        capacity = [
            {
                **_place(group),
                "total": group.total,
                "used": group.used,
                "free": self._free(group),
                "min_free": self._min_free(group),
            }
            for group in self.region.groups.values()
        ]
        return self._answer("capacity", capacity, {"hours": FORWARD_HOURS})

    def halls(self, request: Request) -> Response:
        halls = [
            {"hall": hall, "status": "lost" if hall in self.region.lost_halls else "up"}
            for hall in self.region.halls
        ]
        return self._answer("halls", halls, {})

    def _answer(self, name: str, entries: list[dict[str, Any]], more: dict[str, Any]) -> Response:
        return json({"region": self.region.name, "as_of": iso_time(self.region.now()), **more, name: entries})

    def _free(self, group: HostGroup) -> int:
        return 0 if group.plan.hall in self.region.lost_halls else group.free

    def _min_free(self, group: HostGroup) -> int:
        """The least that is free within the next day, by the calendar, if nothing else starts."""
        free = self._free(group)
        if group.plan.purchase_model is PurchaseModel.COMMITTED:
            return min(free, max(0, self._least_leased(group) - group.used))
        return max(0, free - calendar_peak(self.region.settings.seed, group.plan))

    def _least_leased(self, group: HostGroup) -> int:
        """The smallest total that leases give the group at any time within the next day."""
        now = self.region.now()
        until = now + timedelta(hours=FORWARD_HOURS)
        leases = self.region.leases.all()
        moments = {now, *(lease.end_at for lease in leases if now <= lease.end_at <= until)}
        return min(
            sum(
                reservation.amount
                for lease in leases
                if lease.overlaps(moment, moment + timedelta(microseconds=1))
                for reservation in lease.reservations
                if reservation.group == group.name
            )
            for moment in moments
        )


def _place(group: HostGroup) -> dict[str, Any]:
    return {
        "hall": group.plan.hall,
        "flavor": group.plan.flavor,
        "purchase_model": str(group.plan.purchase_model),
        "host_group": group.name,
        "aggregate": group.plan.aggregate,
    }

"""Who books leases on either provider, and where."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.ports import Lease
from tests.conformance.hands import Hands, until
from tests.conformance.provider import REGION, Provider

HALL, SKU, FLAVOR = "eu-north-h4", "gp", "gp.l"
HOST = f"{HALL}-gp-l-committed"
VCPUS, RAM_MIB, DISK_GIB = 16, 64 * 1024, 40
WHERE = {"service_type": "reservation", "interface": "public", "region_name": REGION}
ACCEPT = {"Accept": "application/json"}
BY_FLAVOR, BY_SIZE = "flavor:instance", "virtual:instance"
LONG = timedelta(days=60)
_numbers = itertools.count(1)


class Lessor:
    """Books leases with the project's own user, as an operator would, and gives them back."""

    def __init__(self, provider: Provider, hands: Hands, instances: int) -> None:
        self.instances = instances
        self._hands = hands
        self._connection = provider.connect()
        self._booked: list[str] = []
        found = self._connection.compute.find_flavor(FLAVOR, ignore_missing=False)
        self.flavor_id = str(found.id)

    def close(self) -> None:
        for lease_id in self._booked:
            self.ask("DELETE", f"/leases/{lease_id}")
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request to Blazar as it is, whatever it answers."""
        return self._connection.session.request(
            path, method, json=body, endpoint_filter=WHERE, headers=ACCEPT, raise_exc=False
        )

    def try_to_book(self, end: datetime, *, kind: str = BY_SIZE, amount: int = 1, start: str = "now") -> Any:
        properties = ["and", ["==", "$availability_zone", HALL], ["==", "$sku", SKU]]
        size = {"vcpus": VCPUS, "memory_mb": RAM_MIB, "disk_gb": DISK_GIB}
        reservation = {
            "resource_type": kind,
            "amount": amount,
            "affinity": None,
            "resource_properties": json.dumps(properties),
            **(size if kind == BY_SIZE else {"flavor_id": self.flavor_id}),
        }
        body = {
            "name": f"lease-{next(_numbers)}",
            "start_date": start,
            "end_date": text(end),
            "reservations": [reservation],
            "events": [],
        }
        answer = self.ask("POST", "/leases", body)
        if answer.status_code == 201:
            self._booked.append(str(answer.json()["lease"]["id"]))
        return answer

    def book(self, kind: str = BY_SIZE, amount: int = 1) -> Lease:
        """A lease that runs."""
        answer = self.try_to_book(datetime.now(UTC) + LONG, kind=kind, amount=amount)
        assert answer.status_code == 201, answer.text
        lease_id = self._booked[-1]
        return until(lambda: self.lease(lease_id), lambda lease: lease.status == "ACTIVE")

    def lease(self, lease_id: str) -> Lease:
        return next(one for one in self._hands.catalog.leases(REGION) if one.lease_id == lease_id)

    def end(self, lease: Lease) -> None:
        """Give a lease back before its end."""
        assert self.ask("DELETE", f"/leases/{lease.lease_id}").status_code == 204

    def flavors(self) -> dict[str, Any]:
        """Every flavor that the project sees, by id."""
        return {each.id: each for each in self._connection.compute.flavors()}


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")

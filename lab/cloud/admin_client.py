"""A client of the cloud's admin API, for tests, scenarios and the demo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from lab.cloud.faults import ArmedRule, FaultRule
from lab.cloud.notifications import NotificationFaults

TIMEOUT_SECONDS = 30.0
Params = Sequence[tuple[str, str]]


class AdminClient:
    """Controls of a running cloud. A refused call raises ValueError with the cloud's reason."""

    def __init__(self, base_url: str, token: str) -> None:
        self._http = httpx2.Client(
            base_url=f"{base_url}/admin",
            headers={"X-Admin-Token": token},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def add_fault(self, rule: FaultRule) -> int:
        """Arm a rule; answers its id."""
        return int(self._call("POST", "/faults", rule.model_dump(mode="json"))["rule_id"])

    def clear_faults(self) -> None:
        self._call("DELETE", "/faults")

    def faults(self) -> list[ArmedRule]:
        """The rules in force, with how often each matched and fired."""
        return [
            ArmedRule(each["rule_id"], FaultRule.model_validate(each["rule"]), each["matched"], each["fired"])
            for each in self._call("GET", "/faults")["faults"]
        ]

    def requests(self, window_seconds: float = 1.0, recent: int = 0) -> dict[str, Any]:
        """Per region: total, calls per second, and the most within any `window_seconds` (real time).

        What the identity service was asked, which belongs to no region, counts under `identity`.
        """
        params = [("window_seconds", str(window_seconds)), ("recent", str(recent))]
        return self._call("GET", "/requests", params=params)

    def clear_requests(self) -> None:
        self._call("DELETE", "/requests")

    def servers(self, *, region: str | None = None, metadata: dict[str, str] | None = None) -> list[Any]:
        """Every server that ever was, with its true state: `status` DELETED means it is gone."""
        params: list[tuple[str, str]] = [
            ("metadata", f"{key}={value}") for key, value in (metadata or {}).items()
        ]
        params += [("region", region)] if region else []
        return list(self._call("GET", "/servers", params=params)["servers"])

    def terminate(self, server_id: str) -> None:
        """Take a server away at once, as the provider may."""
        self._call("DELETE", f"/servers/{server_id}")

    def load(
        self, region: str, count: int, *, tags: tuple[str, ...] = (), metadata: dict[str, str] | None = None
    ) -> int:
        """Put ACTIVE servers into a region at once; answers how many found capacity."""
        body = {"region": region, "count": count, "tags": tags, "metadata": metadata or {}}
        return int(self._call("POST", "/load", body)["loaded"])

    def capacity(self, region: str | None = None) -> dict[str, Any]:
        """By host group: total, used and reservable instances."""
        params = [("region", region)] if region else ()
        entries = self._call("GET", "/capacity", params=params)["capacity"]
        return {entry["pool"]: entry for entry in entries}

    def set_capacity(self, pool: str, total: int) -> None:
        self._call("POST", "/capacity", {"pool": pool, "total": total})

    def set_quota(self, region: str, **limits: int) -> None:
        """Set `instances`, `cores` or `ram` (MiB); -1 is unlimited."""
        self._call("POST", "/quota", {"region": region, **limits})

    def set_hall(self, hall: str, status: str) -> None:
        """`lost` or `up`."""
        self._call("POST", "/hall", {"hall": hall, "status": status})

    def set_leases(self, region: str, *, full: bool) -> None:
        """While the calendar is full, no lease of the region can be prolonged."""
        self._call("POST", "/leases", {"region": region, "full": full})

    def set_notification_faults(self, faults: NotificationFaults) -> None:
        """How notifications go astray from now on."""
        self._call("POST", "/notifications", faults.model_dump(mode="json"))

    def enroll(self, hall: str, sku: str, count: int) -> list[str]:
        """Add bare-metal nodes of the family `bm` or `bg`; their ids."""
        return list(self._call("POST", "/nodes", {"hall": hall, "sku": sku, "count": count})["nodes"])

    def set_node(self, node_id: str, provision_state: str) -> None:
        """Put a bare-metal node into a provision state, such as `error`."""
        self._call("POST", f"/nodes/{node_id}", {"provision_state": provision_state})

    def clock(self) -> dict[str, Any]:
        return self._call("GET", "/clock")

    def set_speed(self, speed: float) -> None:
        self._call("POST", "/clock", {"speed": speed})

    def advance(self, seconds: float) -> None:
        """Move the cloud's clock forward; everything that falls due happens before this returns."""
        self._call("POST", "/clock", {"advance_seconds": seconds})

    def expire_tokens(self) -> int:
        """End every token; clients must sign in again."""
        return int(self._call("DELETE", "/tokens")["expired"])

    def _call(self, method: str, path: str, body: object = None, params: Params = ()) -> dict[str, Any]:
        response = self._http.request(method, path, json=body, params=tuple(params))
        data: dict[str, Any] = response.json() if response.content else {}
        if response.is_error:
            raise ValueError(f"the cloud refused {method} {path}: {data.get('error')}")
        return data

"""What the laboratory's Nova tells of its servers is written down as it was sent."""

from __future__ import annotations

import json
from typing import Any

from store.budget import BudgetStore
from tests.conformance.hands import Hands, spec, until
from tests.conformance.nova import NovaCloud
from tests.conformance.provider import HALL, REGION


def test_notifications_of_a_servers_life_are_recorded(
    nova: NovaCloud, budgets: BudgetStore, workload: str
) -> None:
    hands = Hands(nova.settings(), budgets)
    [runs] = hands.running(workload, 1)
    hands.compute.create_batch(spec(f"{workload}-failed", metadata=nova.failing_build()), 1)
    [fails] = [each.server_id for each in hands.settled(f"{workload}-failed")]
    hands.compute.delete(REGION, runs)

    def told() -> dict[tuple[str, str], dict[str, Any]]:
        lines = nova.running.notifications.read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        return {
            (each["event_type"], each["payload"]["nova_object.data"].get("uuid", "")): each for each in events
        }

    wanted = {("instance.create.end", runs), ("instance.delete.end", runs), ("instance.create.error", fails)}
    found = until(told, lambda events: wanted <= events.keys())
    assert wanted <= found.keys()
    created = found["instance.create.end", runs]
    assert (created["priority"], found["instance.create.error", fails]["priority"]) == ("INFO", "ERROR")
    shown = created["payload"]["nova_object.data"]
    assert (shown["state"], shown["availability_zone"]) == ("active", HALL)
    assert shown["metadata"]["sco_workload"] == workload
    hands.close()

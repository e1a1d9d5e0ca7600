"""Models in the demo: a task that may not go anywhere, a load that is seen, and a task for no pool at all."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console

from lab.demo.tools import Sco, expect
from lab.stack.errors import StackError

MODEL = "llama-3.3:70gb"
TASK = ("--model", MODEL, "--vram-gb", "70")
NORTH = ("--region", "eu-north", "--boundary", "regional")
NOWHERE = ("--region", "eu-west", "--boundary", "private")
CHOSEN, CHEAPER = "cloud-a", "cloud-b"
# Why not the others: one lacks memory, and the cheaper one is shared with strangers.
LEFT_OUT = {"gpu-local": "memory", CHEAPER: "region"}
NO_POOL = 5
PLACEMENT = re.compile(r"placement ([0-9a-f-]{36}): ")


def place_models(console: Console, sco: Sco) -> None:
    """Place one model cold and again warm, be denied once, and give everything back."""
    cold = _placed(sco, "first", "--wait")
    expect("pool and warmth of the first placement", _where(cold), (CHOSEN, False))
    _explain(console, sco, cold)
    sco.run("describe", "pool", CHOSEN)
    warm = _placed(sco, "second")
    expect("pool and warmth of the second placement", _where(warm), (CHOSEN, True))
    denied = sco.run("models", "place", "--deployment", "third", *TASK, *NOWHERE, expect=(NO_POOL,))
    if "policy_denied" not in denied:
        raise StackError(f"a task for no pool at all should be denied by policy:\n{denied}")
    console.print(f"It ended with exit code {NO_POOL}: the policy denies it, and nothing is relaxed.")
    for one in (cold, warm):
        sco.run("models", "release", one["placementId"])
    held = sco.data("get", "model-placements", "--state", "held")
    expect("placements that are held in the end", len(held), 0)


def _placed(sco: Sco, deployment: str, *more: str) -> dict[str, Any]:
    """The stored decision of a placement that is made now."""
    printed = sco.run("models", "place", "--deployment", deployment, *TASK, *NORTH, *more)
    found = PLACEMENT.search(printed)
    if found is None:
        raise StackError(f"sco models place names no placement:\n{printed}")
    return dict(sco.data("describe", "model-placement", found[1]))


def _where(decision: dict[str, Any]) -> tuple[str | None, bool]:
    return decision["chosenPoolId"], decision["warm"]


def _explain(console: Console, sco: Sco, decision: dict[str, Any]) -> None:
    """Why not the two pools that a person would ask about."""
    asked = [word for pool in LEFT_OUT for word in ("--pool", pool)]
    sco.run("describe", "model-placement", decision["placementId"], *asked)
    found = {one["poolId"]: one for one in decision["candidates"]}
    expect("why not the others", {pool: found[pool]["reason"] for pool in LEFT_OUT}, LEFT_OUT)
    paid, instead = (float(found[pool]["pricePerHourUsd"]) for pool in (CHOSEN, CHEAPER))
    expect(f"{CHEAPER} is cheaper than {CHOSEN}", instead < paid, True)
    console.print(
        f"{CHEAPER} costs {instead:g} USD per hour instead of {paid:g}. No price buys another region."
    )

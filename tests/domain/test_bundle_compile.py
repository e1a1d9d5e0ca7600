"""The content of a bundle follows from contract, partition and keys, and from nothing else."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import ValidationError

from domain.bundle_compile import (
    SCHEDULER_PATH,
    TIER_DRAIN,
    CompiledBundle,
    NodeFacts,
    Trusted,
    compile_bundle,
    drain_of,
)
from domain.contract import TIER_FLOOR, Contract, Tier

FACTS = NodeFacts(
    tenant_id="platform",
    instance_id="server-1",
    region="eu-north",
    hall="eu-north-h1",
    pool_id="eu-north-h1-gp-m",
    partition_id="k8s-eu-north",
    scheduler="kubernetes",
    workload_id="orders-daily",
)
TRUSTED = Trusted(notice_keys={"n": "N"}, bundle_keys={"b": "B"})


def contract(tier: Tier = Tier.T1, **changed: object) -> Contract:
    said = {"contract_id": "c", "tier": tier, "floor_share": TIER_FLOOR[tier]} | changed
    return Contract.model_validate(said)


def test_every_tier_declares_how_its_work_ends() -> None:
    assert set(TIER_DRAIN) == set(Tier)
    told = {
        tier: (drain.checkpoint, drain.restart)
        for tier in Tier
        for drain in [drain_of(contract(tier), "kubernetes")]
    }
    assert told == {
        Tier.T1: ("periodic_and_final", "resume"),
        Tier.T2: ("none", "none"),
        Tier.T3: ("periodic_and_final", "resume"),
        Tier.T4: ("none", "requeue"),
        Tier.T5: ("none", "requeue"),
        Tier.BESPOKE: ("none", "none"),
    }


@pytest.mark.parametrize(
    ("scheduler", "tier", "path", "signal"),
    [
        ("kubernetes", Tier.T1, "kubernetes", "TERM"),
        ("slurm", Tier.T1, "slurm", "USR1"),
        ("slurm", Tier.T3, "slurm", "USR1"),
        ("slurm", Tier.T4, "slurm", "TERM"),
        ("", Tier.T1, "plain", "TERM"),
        ("nomad", Tier.T3, "plain", "TERM"),
    ],
)
def test_path_and_signal(scheduler: str, tier: Tier, path: str, signal: str) -> None:
    drain = drain_of(contract(tier), scheduler)
    assert (drain.path, drain.signal) == (path, signal)
    assert set(SCHEDULER_PATH) == {"kubernetes", "slurm"}


@pytest.mark.parametrize("seconds", [1, 60, 115])
def test_the_budget_is_the_contracts(seconds: int) -> None:
    assert drain_of(contract(drain_budget_seconds=seconds), "slurm").budget_seconds == seconds


def test_the_same_makes_the_same_and_the_digest_tells_everything_else_apart() -> None:
    def compiled(facts: NodeFacts = FACTS, trusted: Trusted = TRUSTED, **changed: object) -> CompiledBundle:
        return compile_bundle(facts, contract(**changed), trusted, ("nats://a",))  # type: ignore[arg-type]

    first = compiled()
    assert first == compiled()
    assert first.digest("b") == compiled().digest("b")
    others = [
        first.digest("b2"),
        compiled(drain_budget_seconds=60).digest("b"),
        compiled(repo_commit="abc").digest("b"),
        compiled(tier=Tier.T2).digest("b"),
        compiled(trusted=Trusted(notice_keys={"n": "N"}, bundle_keys={"b": "B", "b2": "B2"})).digest("b"),
        compiled(trusted=Trusted(notice_keys={"n": "M"}, bundle_keys={"b": "B"})).digest("b"),
        compiled(facts=FACTS.model_copy(update={"hall": "h2"})).digest("b"),
        compile_bundle(FACTS, contract(), TRUSTED).digest("b"),
    ]
    assert len({first.digest("b"), *others}) == len(others) + 1


def test_floor_and_caps_change_nothing_for_a_node() -> None:
    richer = contract(floor_share=Decimal("0.9"), pool_cap_share=Decimal("0.3"))
    assert compile_bundle(FACTS, richer, TRUSTED) == compile_bundle(FACTS, contract(), TRUSTED)


@pytest.mark.parametrize("instance_id", ["", "a.b", "*", "x" * 64, "a b"])
def test_an_instance_that_no_subject_can_name_is_refused(instance_id: str) -> None:
    with pytest.raises(ValidationError):
        NodeFacts(**FACTS.model_dump() | {"instance_id": instance_id})

"""The content of a bundle follows from contract, partition and keys, and from nothing else."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.bundle_compile import (
    SCHEDULER_PATH,
    CompiledBundle,
    NodeFacts,
    Trusted,
    compile_bundle,
    drain_of,
)
from domain.contract import (
    TIER_DRAIN,
    TIER_FLOOR,
    CheckpointMode,
    Contract,
    Restart,
    Tier,
    contract_problems,
)
from tests.domain.strategies import QUICK

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
# What was issued before contracts said how their work ends, by tier and scheduler; T3 is as T1, T5 as T4.
DIGESTS_BEFORE = {
    (Tier.T1, "kubernetes"): "b95fa4090a5ae01bd52baf1340ddd00e4b88997d553287e839f2d30bedc33922",
    (Tier.T1, "slurm"): "1249101c88122b065986ce0f3eaa7888d5571a4fbc737a445aa3928e00ec5765",
    (Tier.T1, ""): "cfb5e46bb408add2121da73fdbab0633a700bf574713baa0eed22eb7ba8c7caa",
    (Tier.T2, "kubernetes"): "be4d8c1d6bcd807685c58b700284ed266d0be700cfcdb7ad0dd2ef603fad3316",
    (Tier.T2, "slurm"): "7d9cd553274389b78a9b6a76b558b01ba95f223f1b735bb52c90d7c7ad1fec50",
    (Tier.T4, "kubernetes"): "e19ea4d3bf1d448fc11ccbdc8a625beb1dcfa3036eb540c4bc9f5e3d44340595",
    (Tier.T4, "slurm"): "43bbfc0ac0e7926a7f0e77229bd22a761a9293a44e978477d482a0c918190fc1",
}


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


@pytest.mark.parametrize("drains", [True, False])
def test_whether_an_advisory_notice_drains_is_the_contracts(drains: bool) -> None:
    assert drain_of(contract(drain_on_advisory=drains), "slurm").drain_on_advisory is drains
    assert drain_of(contract(), "slurm").drain_on_advisory is False


@pytest.mark.parametrize(
    ("mode", "signal"),
    [("none", "TERM"), ("periodic", "TERM"), ("final", "USR1"), ("periodic_and_final", "USR1")],
)
def test_a_batch_job_is_told_by_usr1_when_it_has_something_to_write(mode: str, signal: str) -> None:
    said = contract(Tier.BESPOKE, checkpoint_mode=mode)
    assert [drain_of(said, scheduler).signal for scheduler in ("slurm", "kubernetes", "")] == [
        signal,
        "TERM",
        "TERM",
    ]


CONTRACTS = st.builds(
    contract,
    st.sampled_from(Tier),
    drain_budget_seconds=st.integers(1, 115),
    drain_on_advisory=st.booleans(),
    checkpoint_mode=st.none() | st.sampled_from(CheckpointMode),
    final_write_seconds=st.none() | st.integers(1, 115),
    restart=st.none() | st.sampled_from(Restart),
)


@QUICK
@given(CONTRACTS, st.sampled_from(["kubernetes", "slurm", "", "nomad"]))
def test_orders_are_what_was_declared_and_what_was_not_is_as_before(said: Contract, scheduler: str) -> None:
    drain = drain_of(said, scheduler)
    assert drain.budget_seconds == said.drain_budget_seconds
    assert (drain.checkpoint, drain.restart) == (said.checkpoint_mode, said.restart)
    assert drain.drain_on_advisory is said.drain_on_advisory
    old = {"contract_id", "tier", "floor_share", "drain_budget_seconds"}
    before = Contract.model_validate(said.model_dump(include=old))
    assert contract_problems(before) == ()
    kept = drain_of(before, scheduler)
    assert (kept.checkpoint, kept.restart, kept.drain_on_advisory) == (*TIER_DRAIN[said.tier], False)
    # And whoever declares just what the tier does gets the very same bundle.
    same = before.model_copy(update=TIER_DRAIN[said.tier]._asdict())
    facts = FACTS.model_copy(update={"scheduler": scheduler})
    digests = {compile_bundle(facts, one, TRUSTED).digest("b") for one in (before, same)}
    assert len(digests) == 1


@pytest.mark.parametrize(("tier", "scheduler"), DIGESTS_BEFORE)
def test_a_contract_that_says_nothing_new_has_no_bundle_issued_again(tier: Tier, scheduler: str) -> None:
    facts = FACTS.model_copy(update={"scheduler": scheduler})
    digest = compile_bundle(facts, contract(tier), TRUSTED, ("nats://a",)).digest("b")
    assert digest == DIGESTS_BEFORE[tier, scheduler]


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
        compiled(drain_on_advisory=True).digest("b"),
        compiled(checkpoint_mode="final").digest("b"),
        compiled(restart="requeue").digest("b"),
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

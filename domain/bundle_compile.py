"""What a node has to know of its contract, compiled: the rule behind every bundle.

How work is drained is declared by the contract and by the scheduler of its partition, never guessed from the
work itself.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field

from domain.claim import WorkloadId
from domain.contract import WRITES_LAST, BudgetSeconds, CheckpointMode, Contract, Restart
from domain.model import Frozen
from domain.pool import Name, PoolId

Path = Literal["kubernetes", "slurm", "plain"]
Signal = Literal["TERM", "USR1"]
SCHEDULER_PATH: dict[str, Path] = {"kubernetes": "kubernetes", "slurm": "slurm"}


class NodeFacts(Frozen):
    """Where an instance is and what it is for. Before it exists its batch stands for it."""

    tenant_id: Name
    instance_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
    region: Name
    hall: Name
    pool_id: PoolId
    partition_id: Name
    scheduler: str
    workload_id: WorkloadId


class Trusted(Frozen):
    """Public keys by name: whose notices and whose bundles a node believes."""

    notice_keys: dict[str, str]
    bundle_keys: dict[str, str]


class Drain(Frozen):
    """How the work of a node is drained."""

    path: Path
    budget_seconds: BudgetSeconds
    signal: Signal
    checkpoint: CheckpointMode
    restart: Restart
    drain_on_advisory: bool = False


class CompiledBundle(Frozen):
    """The content of a bundle: everything but its version, its time and its signature."""

    facts: NodeFacts
    contract_id: Name
    contract_commit: str
    drain: Drain
    trusted: Trusted
    node_bus: tuple[str, ...]

    def digest(self, key_id: str) -> str:
        """The same for the same content signed by the same key: whether a bundle has to be issued again.

        Only fields that came later have defaults. Those are left out, so that a node whose contract does not
        use them is not given the same orders once more.
        """
        told = self.model_dump(mode="json", exclude_defaults=True) | {"key_id": key_id}
        return sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def compile_bundle(
    facts: NodeFacts, contract: Contract, trusted: Trusted, node_bus: tuple[str, ...] = ()
) -> CompiledBundle:
    """What the node of `facts` has to know to drain alone under `contract`."""
    return CompiledBundle(
        facts=facts,
        contract_id=contract.contract_id,
        contract_commit=contract.repo_commit,
        drain=drain_of(contract, facts.scheduler),
        trusted=trusted,
        node_bus=node_bus,
    )


def drain_of(contract: Contract, scheduler: str) -> Drain:
    """How work under a contract ends on a node of a scheduler; one that nobody knows is drained locally.

    A batch job that writes last is told by USR1, so that its TERM keeps its usual meaning: end now.
    """
    path = SCHEDULER_PATH.get(scheduler, "plain")
    return Drain(
        path=path,
        budget_seconds=contract.drain_budget_seconds,
        signal="USR1" if path == "slurm" and contract.checkpoint_mode in WRITES_LAST else "TERM",
        checkpoint=contract.checkpoint_mode,
        restart=contract.restart,
        drain_on_advisory=contract.drain_on_advisory,
    )

"""What a node holds ahead of time, laid on its disk as its image and its first minutes would have done."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lab.reclaimer.targets import Node
from lab.relay.admission import Admission, write_private
from wire.bundle import Bundle, DrainOrders, DrainPath, Trust, write_bundle
from wire.signing import SigningKey

BUNDLE_FILE, TRUST_FILE, CREDENTIALS_FILE = "bundle.json", "trust.json", "bus.creds"
TENANT, REGION, PARTITION, WORKLOAD, CONTRACT = "platform", "eu-north", "lab", "nodes", "nodes"
PLAIN_ORDERS = DrainOrders(path=DrainPath.PLAIN, budget_seconds=115)


class Papers:
    """Signs bundles with a key of the laboratory, and admits nodes to its bus."""

    def __init__(self, admission: Admission, bus_url: str, notice_keys: Mapping[str, str]) -> None:
        self._admission = admission
        self._bus_url = bus_url
        self._key = SigningKey("bundles-1", Ed25519PrivateKey.generate())
        self.trust = Trust(
            notice_keys=dict(notice_keys), bundle_keys={self._key.key_id: self._key.public_text}
        )

    def bundle(self, node: Node, orders: DrainOrders = PLAIN_ORDERS, version: int = 1) -> bytes:
        """The signed bundle of one node."""
        return write_bundle(
            Bundle(
                version=version,
                issued_at=datetime.now(UTC),
                tenant_id=TENANT,
                instance_id=node.instance_id,
                region=REGION,
                hall=node.hall,
                pool_id=node.pool_id,
                partition_id=PARTITION,
                workload_id=WORKLOAD,
                contract_id=CONTRACT,
                drain=orders,
                trust=self.trust,
                node_bus=(self._bus_url,),
            ),
            self._key,
        )

    def lay_down(self, state_dir: Path, node: Node, orders: DrainOrders = PLAIN_ORDERS) -> None:
        """Put bundle, trusted keys and bus credentials into an agent's state folder."""
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(state_dir / BUNDLE_FILE, self.bundle(node, orders).decode())
        write_private(state_dir / TRUST_FILE, self.trust.model_dump_json(by_alias=True))
        admitted = self._admission.agent_credentials(node.hall, node.instance_id)
        write_private(state_dir / CREDENTIALS_FILE, admitted)

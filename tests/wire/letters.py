"""Letters for tests: a key, what is said, and ways to spoil it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wire.bundle import Bundle, DrainOrders, DrainPath, Trust
from wire.notices import Notice, NoticeCause, NoticeKind
from wire.signing import KeyRing, SigningKey

KEY = SigningKey("first", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
NEXT_KEY = SigningKey("second", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
RING = KeyRing({KEY.key_id: KEY.public_text})
AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
OWN, HALL = "server-1", "eu-north-h1"
NOTICE = Notice(
    notice_id=UUID("7e0d4c4e-8a53-5c55-8d0f-6a1f6c1d2b3a"),
    instance_id=OWN,
    hall=HALL,
    kind=NoticeKind.HARD,
    cause=NoticeCause.RECLAIM,
    issued_at=AT,
    deadline=AT + timedelta(seconds=120),
    reason="capacity is needed for größere Aufträge",
)
WITHDRAWAL = NOTICE.model_copy(
    update={"kind": NoticeKind.WITHDRAWAL, "deadline": None, "withdraws": NOTICE.notice_id}
)
BUNDLE = Bundle(
    version=7,
    issued_at=AT,
    tenant_id="platform",
    instance_id=OWN,
    region="eu-north",
    hall=HALL,
    pool_id="eu-north-h1-gp-m",
    partition_id="k8s-eu-north",
    workload_id="orders-daily",
    contract_id="orders-daily",
    contract_commit="abc",
    drain=DrainOrders(path=DrainPath.KUBERNETES, budget_seconds=115),
    trust=Trust(
        notice_keys={"reclaimer-1": KEY.public_text},
        bundle_keys={KEY.key_id: KEY.public_text, NEXT_KEY.key_id: NEXT_KEY.public_text},
    ),
    node_bus=("nats://bus.example.net:4222",),
)


def spoiled(raw: bytes) -> Iterator[bytes]:
    """The letter with each byte changed, taken away and doubled, and cut off at each place."""
    for place in range(len(raw)):
        for other in (raw[place] ^ 1, raw[place] ^ 0x20, raw[place] ^ 0x80, 0x20):
            if other != raw[place]:
                yield raw[:place] + bytes([other]) + raw[place + 1 :]
        yield raw[:place] + raw[place + 1 :]
        yield raw[:place] + raw[place : place + 1] + raw[place:]
        yield raw[:place]


def resaid(raw: bytes, **changed: Any) -> bytes:
    """The letter with other members, its signature left as it was."""
    return json.dumps(json.loads(raw) | changed).encode()

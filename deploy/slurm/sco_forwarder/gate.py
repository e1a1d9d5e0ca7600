"""Who asks: a signed request of a registered node, made about now, once.

The signature is Ed25519 over five lines: method, target, time, nonce and the SHA-256 of the body in hex.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

INSTANCE, TIME, NONCE, SIGNATURE = "sco-instance", "sco-time", "sco-nonce", "sco-signature"
# How far the clock of a node may differ; a node corrects its own by the time in our answers.
MAX_SKEW_SECONDS = 60.0
# What one node may ask in a while; a drain asks about once a second.
BURST = 120
PER_SECOND = 20.0
INSTANCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
NONCE_TEXT = re.compile(r"[A-Za-z0-9_-]{16,64}")
TIME_TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")

log = logging.getLogger("sco-forwarder")


class Refused(Exception):
    """A request that is not done: the status of the answer, one word why, and what was found."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason


class Node(NamedTuple):
    """A registered node: its instance, its name in Slurm, its public key."""

    instance: str
    name: str
    key: Ed25519PublicKey


class Asked(NamedTuple):
    """A request as it came. Names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Nodes:
    """The file of registered nodes, read again whenever it changes. A broken file keeps the last good one."""

    def __init__(self, path: Path) -> None:
        """ValueError or OSError when the file cannot be read now."""
        self._path = path
        self._stamp = self._stamp_now()
        self._nodes = read_nodes(path.read_text())

    def find(self, instance: str) -> Node | None:
        self._refresh()
        return self._nodes.get(instance)

    def _refresh(self) -> None:
        try:
            stamp = self._stamp_now()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._nodes = read_nodes(self._path.read_text())
            log.info("%s names %d nodes", self._path, len(self._nodes))
        except (OSError, ValueError) as error:
            log.error("%s is not used, the nodes known before are: %s", self._path, error)

    def _stamp_now(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_size, found.st_ino


def read_nodes(text: str) -> dict[str, Node]:
    """`{"<instance>": {"node": "<Slurm name>", "publicKey": "<base64>"}}`. ValueError says what is wrong."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError("an object of nodes by instance is needed")
    nodes = {instance: _node_of(instance, entry) for instance, entry in raw.items()}
    held = Counter(node.name for node in nodes.values())
    twice = sorted(name for name, times in held.items() if times > 1)
    if twice:
        raise ValueError(f"more than one instance is node {twice[0]!r}")
    return nodes


def _node_of(instance: str, entry: object) -> Node:
    fields = entry if isinstance(entry, dict) else {}
    name, key = fields.get("node"), fields.get("publicKey")
    if INSTANCE_ID.fullmatch(instance) is None:
        raise ValueError(f"{instance[:80]!r} is no id of an instance")
    if not isinstance(name, str) or NODE_NAME.fullmatch(name) is None:
        raise ValueError(f"instance {instance}: `node` must be one node's name in Slurm")
    try:
        raw = base64.b64decode(str(key), validate=True)
        return Node(instance, name, Ed25519PublicKey.from_public_bytes(raw))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"instance {instance}: `publicKey` is no Ed25519 key in base64") from error


class Gate:
    """Lets a request through once, as the node that signed it."""

    def __init__(self, nodes: Nodes, clock: Callable[[], float] = time.time) -> None:
        self._nodes = nodes
        self._clock = clock
        # What was let through before the start is not remembered; so nothing from before is let through.
        self._started = clock()
        self._lock = threading.Lock()
        self._used: dict[tuple[str, str], float] = {}
        self._rates: dict[str, tuple[float, float]] = {}

    def admit(self, asked: Asked) -> Node:
        """The node that asks. Refused says why it is not believed."""
        instance, nonce = asked.headers.get(INSTANCE, ""), asked.headers.get(NONCE, "")
        node = self._nodes.find(instance)
        if node is None:
            raise Refused(401, "unknown", "no registered node signs as this instance")
        self._check_signature(node, asked, nonce)
        with self._lock:
            self._check_rate(instance)
            self._check_time(asked.headers[TIME])
            self._use(instance, nonce)
        return node

    def _check_signature(self, node: Node, asked: Asked, nonce: str) -> None:
        said = asked.headers.get(TIME, "")
        if NONCE_TEXT.fullmatch(nonce) is None or TIME_TEXT.fullmatch(said) is None:
            raise Refused(401, "malformed", f"{TIME} or {NONCE} is not as it should be")
        lines = (asked.method, asked.target, said, nonce, hashlib.sha256(asked.body).hexdigest())
        try:
            signature = base64.b64decode(asked.headers.get(SIGNATURE, ""), validate=True)
            node.key.verify(signature, "\n".join(lines).encode())
        except (InvalidSignature, binascii.Error, ValueError) as error:
            raise Refused(401, "bad_signature", "not signed by the instance's key") from error

    def _check_rate(self, instance: str) -> None:
        now = self._clock()
        tokens, at = self._rates.get(instance, (float(BURST), now))
        tokens = min(float(BURST), tokens + max(0.0, now - at) * PER_SECOND)
        if tokens < 1:
            raise Refused(429, "too_many", f"more than {PER_SECOND:.0f} requests a second of one node")
        self._rates[instance] = (tokens - 1, now)

    def _check_time(self, said: str) -> None:
        now = self._clock()
        try:
            made = datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp()
        except ValueError as error:
            raise Refused(401, "malformed", f"{TIME} is no time") from error
        if abs(made - now) > MAX_SKEW_SECONDS or made < self._started:
            raise Refused(401, "stale", f"made {made - now:+.1f} s from now, or before this program started")

    def _use(self, instance: str, nonce: str) -> None:
        now = self._clock()
        if (instance, nonce) in self._used:
            raise Refused(401, "replayed", "this request was made before")
        self._used[instance, nonce] = now + 2 * MAX_SKEW_SECONDS
        # The oldest stand first, so a few looks keep the memory as small as what can still be replayed.
        for key in list(_first(self._used, 4)):
            if self._used[key] < now:
                del self._used[key]


def _first(keys: Mapping[tuple[str, str], float], count: int) -> list[tuple[str, str]]:
    return [key for _, key in zip(range(count), keys, strict=False)]


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

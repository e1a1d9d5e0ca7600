"""The node file of a laboratory's control plane: whom its nodes believe, and where their bus is.

It is written before the API starts and names keys that the nodes' process then takes up, so that either may
be started again without the other.
"""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.cloud.estate import REGIONS
from lab.nodes.plans import PROVIDER_FOLDER
from lab.nodes.provider import BUS_FOLDER, relay_key
from lab.relay.admission import write_private
from lab.relay.bus import NodeBus

NODE_FILE, KEYS_FILE = "node-file.json", "bundle-keys.json"
SIGNS_FROM = "2026-01-01T00:00:00Z"
USER, VENDORDATA = "nova", "/nodes/vendordata"


def write_node_file(folder: Path, api_url: str) -> Path:
    """The file for `SCO_NODE_FILE`, in the folder of the laboratory's nodes. Written once, it stays."""
    path = folder / NODE_FILE
    if path.exists():
        return path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    seed = base64.b64encode(secrets.token_bytes(32)).decode()
    keys = {"keys": [{"name": "bundles-1", "seed": seed, "signs_from": SIGNS_FROM}]}
    bus = NodeBus(folder / PROVIDER_FOLDER / BUS_FOLDER)
    signed = relay_key(folder / PROVIDER_FOLDER)
    issuer = bus.admission.keys
    content: dict[str, Any] = {
        "api_url": api_url,
        "vendordata_secret": secrets.token_urlsafe(32),
        "bundle_keys_file": str(write_private(folder / KEYS_FILE, json.dumps(keys)).resolve()),
        "notice_keys": {signed.key_id: signed.public_text},
        "node_bus": {region: [bus.url] for region in REGIONS},
        "bus": {"account": issuer.account.public, "signing_seed": issuer.signing.seed},
    }
    return write_private(path, json.dumps(content, indent=2))


def vendordata_target(node_file: Path) -> str:
    """The address that Nova would be given as its vendordata target, the secret included."""
    told = json.loads(node_file.read_text())
    url = urlsplit(str(told["api_url"]))
    return f"{url.scheme}://{USER}:{told['vendordata_secret']}@{url.netloc}{VENDORDATA}"

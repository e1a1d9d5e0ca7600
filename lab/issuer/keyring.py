"""The signing keys of the development issuer: one of each kind in use, and those that were in use before."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from joserfc.jwk import ECKey, Key, KeyParameters, OKPKey, RSAKey, import_key

from lab.issuer.accounts import write_private

KEYS_FILE = "keys.json"
ALGORITHMS = ("RS256", "ES256", "EdDSA")
# Tokens that were signed before a rotation go on to be good, as at a real issuer.
KEPT_ROTATIONS = 2


class Keyring:
    """Keys of a data folder, made the first time; without a folder they are new each time."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self._path = None if data_dir is None else data_dir / KEYS_FILE
        self._keys: list[Key] = []
        if self._path is not None and self._path.exists():
            self._keys = [import_key(one) for one in json.loads(self._path.read_text())]
        else:
            self.rotate()

    def rotate(self) -> None:
        """Sign with new keys from now on, and forget the oldest."""
        number = secrets.token_hex(4)
        made = [_new_key(algorithm, f"{algorithm.lower()}-{number}") for algorithm in ALGORITHMS]
        self._keys = [*made, *self._keys][: len(ALGORITHMS) * (1 + KEPT_ROTATIONS)]
        if self._path is not None:
            listed = [one.as_dict(private=True) for one in self._keys]
            write_private(self._path, json.dumps(listed, indent=2) + "\n")

    def signing(self, algorithm: str) -> Key:
        """The newest key for an algorithm."""
        return next(one for one in self._keys if one.alg == algorithm)

    def public(self) -> dict[str, Any]:
        """The JSON Web Key Set that verifiers read."""
        return {"keys": [one.as_dict(private=False) for one in self._keys]}


def _new_key(algorithm: str, kid: str) -> Key:
    facts: KeyParameters = {"alg": algorithm, "use": "sig", "kid": kid}
    if algorithm == "RS256":
        return RSAKey.generate_key(2048, facts)
    if algorithm == "ES256":
        return ECKey.generate_key("P-256", facts)
    return OKPKey.generate_key("Ed25519", facts)

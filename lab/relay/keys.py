"""The relay's signing key on disk: a PEM file that its owner alone may read."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from wire.signing import SigningKey

OTHERS = 0o077


class KeyRefused(Exception):
    """A key file that is missing, readable by others, or no Ed25519 key. The text says which."""


def write_new_key(path: Path, key_id: str) -> SigningKey:
    """Make a key, keep it in a new file of mode 0600. KeyRefused when the file exists."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
    except FileExistsError as error:
        raise KeyRefused(f"{path} exists already: a signing key is never overwritten") from error
    return SigningKey(key_id, private)


def read_key(path: Path, key_id: str) -> SigningKey:
    """The key in a file. KeyRefused says what is wrong with it, never what it holds."""
    try:
        mode = path.stat().st_mode
        pem = path.read_bytes()
    except OSError as error:
        raise KeyRefused(f"{path} cannot be read: {error.strerror}") from error
    if mode & OTHERS:
        raise KeyRefused(f"{path} is open to others (mode {mode & 0o777:o}): make it 600")
    try:
        private = load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise KeyRefused(f"{path} holds no unencrypted private key in PEM") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyRefused(f"{path} holds a key of another kind: an Ed25519 key is needed")
    return SigningKey(key_id, private)

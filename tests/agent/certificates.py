"""An authority of certificates for servers on loopback."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


class Authority:
    """`ca_file` is whom to believe, `server_file` the key and certificate of a server on this machine.

    `trusted_file` is what a machine believes that has the authority among its own list.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file, self.server_file = folder / "ca.crt", folder / "server.pem"
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named("authority")
        root = self._signed(self._name, self._key.public_key(), x509.BasicConstraints(True, None))
        self.ca_file.write_bytes(root.public_bytes(Encoding.PEM))
        self.trusted_file = folder / "trusted.crt"
        own = ssl.get_default_verify_paths().cafile
        others = b"" if own is None else Path(own).read_bytes()
        self.trusted_file.write_bytes(others + self.ca_file.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        server = self._signed(_named("server"), key.public_key(), x509.SubjectAlternativeName(NAMES))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.server_file.write_bytes(private + server.public_bytes(Encoding.PEM))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(self._key, SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

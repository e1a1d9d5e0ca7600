"""Where a request may go: checked addresses only, whatever a name resolves to and the environment says."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import SecretStr

from activities.serving.http import HttpServing
from activities.serving.ports import Endpoint, ServingError, ServingProblem
from domain.serving.endpoint import EndpointTerms
from lab.models.memory import ModelSettings
from lab.models.server import Certificate, ModelsHandle
from tests.activities.serving.model_servers import Answers, served, terms_for
from tests.domain.serving.endpoints import (
    CLOSED_REFERENCES,
    NEVER_ADDRESSES,
    NEVER_REFERENCES,
    PRIVATE_ADDRESSES,
)

HOST = "gpu-7.models.example.net"


@pytest.mark.parametrize("reference", dict.fromkeys(NEVER_REFERENCES + CLOSED_REFERENCES), ids=ascii)
async def test_a_reference_that_is_not_allowed_is_not_even_resolved(reference: str) -> None:
    resolve = Answers(["93.184.215.14"])
    serving = HttpServing(EndpointTerms(), resolve=resolve)
    with pytest.raises(ServingError) as told:
        await serving.probe(Endpoint(url=reference))
    assert told.value.kind is ServingProblem.REFUSED
    assert resolve.asked == []


@pytest.mark.parametrize("address", NEVER_ADDRESSES + PRIVATE_ADDRESSES)
async def test_a_name_that_resolves_to_a_forbidden_address_is_refused(address: str) -> None:
    serving = HttpServing(EndpointTerms(), resolve=Answers([address]))
    with pytest.raises(ServingError) as told:
        await serving.probe(Endpoint(url=f"https://{HOST}"))
    assert told.value.kind is ServingProblem.REFUSED
    assert str(ip_address(address)) in told.value.text


async def test_one_forbidden_address_among_allowed_ones_refuses_all() -> None:
    with served("ollama") as own:
        terms = terms_for(own.handle.port)
        serving = HttpServing(terms, resolve=Answers(["127.0.0.1", "169.254.169.254"]))
        endpoint = Endpoint(url=f"ollama+http://{HOST}:{own.handle.port}", credential=own.endpoint.credential)
        with pytest.raises(ServingError) as told:
            await serving.probe(endpoint)
        assert told.value.kind is ServingProblem.REFUSED


async def test_a_name_that_changes_its_address_is_refused_at_the_next_connection() -> None:
    with served("ollama") as own:
        resolve = Answers(["127.0.0.1"], ["169.254.169.254"])
        serving = HttpServing(terms_for(own.handle.port), resolve=resolve)
        endpoint = Endpoint(url=f"ollama+http://{HOST}:{own.handle.port}", credential=own.endpoint.credential)
        await serving.probe(endpoint)
        with pytest.raises(ServingError) as told:
            await serving.probe(endpoint)
        assert told.value.kind is ServingProblem.REFUSED
        assert resolve.asked == [(HOST, own.handle.port)] * 2


async def test_a_host_without_an_address_is_unreachable() -> None:
    async def nothing(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    for resolve in (nothing, Answers([])):
        with pytest.raises(ServingError) as told:
            await HttpServing(EndpointTerms(), resolve=resolve).probe(Endpoint(url=f"https://{HOST}"))
        assert told.value.kind is ServingProblem.UNREACHABLE


async def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    with served("ollama") as own:
        serving = HttpServing(terms_for(own.handle.port), resolve=Answers(["127.0.0.2", "127.0.0.1"]))
        endpoint = Endpoint(url=f"ollama+http://{HOST}:{own.handle.port}", credential=own.endpoint.credential)
        await serving.probe(endpoint)


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with served("openai") as own:
        await own.serving.probe(own.endpoint)


class Authority:
    """A certificate authority that lasts as long as a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
        self._own = self._sign(self._name, self._key, ca=True)

    def certify(self, host: str) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        files = Certificate(self._folder / f"{host}.pem", self._folder / f"{host}.key")
        files.certificate.write_bytes(
            self._sign(name, key, host=host).public_bytes(serialization.Encoding.PEM)
        )
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def trusted(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.load_verify_locations(cadata=self._own.public_bytes(serialization.Encoding.PEM).decode())
        return context

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, host: str | None = None, ca: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if host is not None:
            built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return built.sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_port(authority: Authority) -> Iterator[int]:
    with ModelsHandle(ModelSettings(token=SecretStr("t")), authority.certify(HOST)) as handle:
        yield handle.port


def over_tls(port: int, tls: ssl.SSLContext) -> HttpServing:
    terms = EndpointTerms(networks=(ip_network("127.0.0.0/8"),), ports=(port,))
    return HttpServing(terms, resolve=Answers(["127.0.0.1"]), tls=tls)


async def test_the_certificate_is_checked_for_the_name_although_an_address_is_connected_to(
    authority: Authority, tls_port: int
) -> None:
    serving = over_tls(tls_port, authority.trusted())
    await serving.probe(Endpoint(url=f"ollama+https://{HOST}:{tls_port}", credential=SecretStr("t")))
    with pytest.raises(ServingError) as told:
        await serving.probe(Endpoint(url=f"ollama+https://other.example.net:{tls_port}"))
    assert told.value.kind is ServingProblem.UNREACHABLE
    assert "certificate" in told.value.text.lower()


async def test_an_unknown_authority_is_not_trusted(tls_port: int) -> None:
    serving = over_tls(tls_port, ssl.create_default_context())
    with pytest.raises(ServingError) as told:
        await serving.probe(Endpoint(url=f"ollama+https://{HOST}:{tls_port}", credential=SecretStr("t")))
    assert told.value.kind is ServingProblem.UNREACHABLE

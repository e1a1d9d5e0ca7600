"""No reference reaches what no endpoint is: not as text, and not by what its name resolves to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from domain.serving.endpoint import (
    MAX_LENGTH,
    NEVER,
    Dialect,
    EndpointAddress,
    EndpointRefusal,
    EndpointTerms,
    address_problem,
    read_endpoint,
)
from tests.domain.serving.endpoints import (
    CLOSED_REFERENCES,
    NEVER_ADDRESSES,
    NEVER_REFERENCES,
    PRIVATE,
    PRIVATE_ADDRESSES,
    WIDE,
)

DEFAULT = EndpointTerms()


def test_the_corpus_is_large() -> None:
    assert len(set(NEVER_REFERENCES) | set(CLOSED_REFERENCES)) >= 150


@pytest.mark.parametrize("terms", [DEFAULT, PRIVATE, WIDE], ids=["default", "private", "wide"])
@pytest.mark.parametrize("reference", NEVER_REFERENCES, ids=ascii)
def test_what_no_endpoint_is_stays_refused_under_all_terms(reference: str, terms: EndpointTerms) -> None:
    refused = read_endpoint(reference, terms)
    assert isinstance(refused, EndpointRefusal), refused
    assert refused.why
    assert refused.allowed.startswith("[ollama or openai+]scheme://host")


@pytest.mark.parametrize("reference", CLOSED_REFERENCES, ids=ascii)
def test_what_the_terms_do_not_open_is_closed(reference: str) -> None:
    assert isinstance(read_endpoint(reference, DEFAULT), EndpointRefusal)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (
            "https://a.models.example.net",
            EndpointAddress(Dialect.OPENAI, "https", "a.models.example.net", 443, ""),
        ),
        (
            "ollama+https://a.models.example.net:8443/gpu/7/",
            EndpointAddress(Dialect.OLLAMA, "https", "a.models.example.net", 8443, "/gpu/7"),
        ),
        (
            "openai+https://b.a.models.example.net/gpu/v1",
            EndpointAddress(Dialect.OPENAI, "https", "b.a.models.example.net", 443, "/gpu"),
        ),
        ("ollama+https://gpu-7/v1", EndpointAddress(Dialect.OLLAMA, "https", "gpu-7", 443, "/v1")),
        (
            "https://xn--mnchen-3ya.example.net/",
            EndpointAddress(Dialect.OPENAI, "https", "xn--mnchen-3ya.example.net", 443, ""),
        ),
        ("ollama+http://10.20.3.4:11434", EndpointAddress(Dialect.OLLAMA, "http", "10.20.3.4", 11434, "")),
        ("https://[fd12:3456::7]:8443", EndpointAddress(Dialect.OPENAI, "https", "fd12:3456::7", 8443, "")),
    ],
)
def test_what_the_terms_open_is_read(reference: str, expected: EndpointAddress) -> None:
    assert read_endpoint(reference, PRIVATE) == expected


@pytest.mark.parametrize("address", NEVER_ADDRESSES)
@pytest.mark.parametrize("terms", [DEFAULT, PRIVATE, WIDE], ids=["default", "private", "wide"])
def test_no_connection_is_made_to_what_is_never_an_endpoint(address: str, terms: EndpointTerms) -> None:
    assert address_problem(ip_address(address), "https", terms) is not None


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
def test_private_addresses_are_for_networks_that_are_named(address: str) -> None:
    assert address_problem(ip_address(address), "https", DEFAULT) is not None
    assert address_problem(ip_address(address), "https", WIDE) is None


def test_http_is_spoken_inside_named_networks_only() -> None:
    assert address_problem(ip_address("10.20.1.1"), "http", PRIVATE) is None
    assert address_problem(ip_address("1.1.1.1"), "http", PRIVATE) is not None
    assert address_problem(ip_address("1.1.1.1"), "https", PRIVATE) is None


def test_a_credential_in_a_reference_is_not_repeated() -> None:
    refused = read_endpoint("https://user:hunter2@a.models.example.net/", DEFAULT)
    assert "hunter2" not in str(refused)


def test_terms_say_what_is_allowed() -> None:
    refused = read_endpoint("https://a.other.net/", PRIVATE)
    assert isinstance(refused, EndpointRefusal)
    assert "'a.other.net'" in refused.why
    assert {"*.models.example.net", "10.20.0.0/16", "11434", "http within"} == {
        word
        for word in ("*.models.example.net", "10.20.0.0/16", "11434", "http within")
        if word in refused.allowed
    }


@pytest.mark.parametrize(
    "hosts", [("*models.example.net",), ("",), ("a.*.net",), ("A.example.net",), ("a.example.net.",)]
)
def test_a_pattern_that_would_match_more_than_it_says_is_no_pattern(hosts: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        EndpointTerms(hosts=hosts)


ODD = st.text(alphabet="a1.:/@\\[]%#?-x0\r\n \u0435\u3002+_", max_size=40)


@given(st.sampled_from(["https://", "http://", "ollama+https://", ""]), ODD)
@example("https://", "a.example.net")
def test_whatever_is_read_is_plain_and_reaches_nothing_forbidden(scheme: str, rest: str) -> None:
    read = read_endpoint(scheme + rest, WIDE)
    if isinstance(read, EndpointRefusal):
        return
    assert read.host.isascii()
    assert len(scheme + rest) <= MAX_LENGTH
    assert not set(read.host + read.path) & set("@\\%#?\r\n []")
    literal = read.literal
    if literal is not None:
        assert not any(literal.version == one.version and literal in one for one in NEVER[:7])


@given(st.ip_addresses())
def test_no_default_connection_leaves_the_public_internet(address: object) -> None:
    known = ip_address(str(address))
    if address_problem(known, "https", DEFAULT) is None:
        assert known.is_global

"""Where the server is found, which addresses are refused, and what a run says of itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from clients.cli.failures import Exit, Failure
from clients.cli.settings import find_server, is_loopback
from tests.cli import answers
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document

PROJECT = Path(__file__).parents[2]


def lab(directory: Path, url: str) -> None:
    (directory / ".lab").mkdir()
    (directory / ".lab" / "api.url").write_text(url)


def test_the_flag_comes_before_the_variable_before_the_lab(tmp_path: Path) -> None:
    lab(tmp_path, "http://127.0.0.1:4444\n")
    variable = {"SCO_SERVER": "http://127.0.0.1:5555/"}
    assert find_server("http://127.0.0.1:6666", variable, tmp_path) == "http://127.0.0.1:6666"
    assert find_server(None, variable, tmp_path) == "http://127.0.0.1:5555"
    assert find_server(None, {"SCO_SERVER": ""}, tmp_path) == "http://127.0.0.1:4444"


def test_without_anything_it_is_the_default(tmp_path: Path) -> None:
    assert find_server(None, {}, tmp_path) == "http://127.0.0.1:8080"
    (tmp_path / ".lab").mkdir()
    (tmp_path / ".lab" / "api.url").mkdir()
    assert find_server(None, {}, tmp_path) == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:8080",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://[::1",
        "http://h/?a=b",
        "http://h:0",
    ],
)
def test_what_is_no_address_is_refused_by_name(address: str, tmp_path: Path) -> None:
    with pytest.raises(Failure) as refused:
        find_server(address, {}, tmp_path)
    assert refused.value.code is Exit.USAGE
    assert refused.value.problem.startswith("--server is ")
    assert "http://127.0.0.1:8080" in refused.value.hints[0]


def test_the_lab_file_is_named_when_it_is_wrong(tmp_path: Path) -> None:
    lab(tmp_path, "not an address")
    with pytest.raises(Failure, match=r"\.lab/api\.url is 'not an address'"):
        find_server(None, {}, tmp_path)


def test_a_password_in_an_address_is_never_sent_nor_repeated(sco: Sco, api: FakeApi) -> None:
    address = api.url.replace("http://", "http://me:hunter2@")
    ran = sco("--server", address, "status")
    assert (ran.code, api.calls) == (2, [])
    assert "hunter2" not in ran.err


@pytest.mark.parametrize(
    ("server", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1", True),
        ("http://localhost", True),
        ("https://sco.example.org", False),
        ("http://10.0.0.1", False),
    ],
)
def test_a_proxy_is_not_used_for_this_machine(server: str, loopback: bool) -> None:
    assert is_loopback(server) is loopback


def test_a_proxy_in_the_environment_does_not_hide_the_local_server(
    sco: Sco, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    api.on("GET", "/status", document(answers.status()))
    assert sco("status").code == 0


@pytest.mark.parametrize(
    ("variable", "value"), [("HTTPS_PROXY", "carrier-pigeon://loft"), ("SSL_CERT_FILE", "/nowhere/ca.pem")]
)
def test_an_environment_that_cannot_be_used_is_told(
    sco: Sco, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    ran = sco("--server", "https://sco.example.org", "status")
    assert ran.code == 2
    assert variable in ran.err


def test_the_version_is_the_package_s(sco: Sco) -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert sco("--version").out == f"sco {version}\n"


def test_the_server_learns_the_version_and_nothing_of_the_user(sco: Sco, api: FakeApi) -> None:
    api.on("GET", "/status", document(answers.status()))
    sco("status")
    (call,) = api.calls
    assert call.headers["user-agent"].startswith("sco/")
    assert not {"authorization", "cookie", "referer"} & set(call.headers)

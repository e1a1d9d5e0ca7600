"""Settings of a worker that sees to serving pools, each with its limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from activities.secrets.settings import SecretsFileRefused
from activities.usage_sinks import HttpUsageSink, NoUsageSink
from domain.policy import Policy
from workers.serving import NoSecrets, open_serving
from workers.settings import WorkerSettings


def settings(**said: object) -> WorkerSettings:
    return WorkerSettings.model_validate({"database_url": SecretStr("postgresql://u@127.0.0.1/sco")} | said)


def test_serving_pools_are_seen_to_unless_somebody_else_does() -> None:
    known = settings()
    assert (known.serving, known.collector_seconds, known.pool_probe_seconds) == (True, 60, 20)
    assert (known.secrets_file, known.usage_url) == (None, None)


@pytest.mark.parametrize("name", ["collector_seconds", "pool_probe_seconds"])
def test_intervals_have_their_limits(name: str) -> None:
    for allowed in (1, 600):
        assert getattr(settings(**{name: allowed}), name) == allowed
    for beyond in (0, 601, "often"):
        with pytest.raises(ValidationError):
            settings(**{name: beyond})


@pytest.mark.parametrize("url", ["ftp://x", "usage.example.net", "https://user:word@x/hours", "https://x y"])
def test_a_usage_address_is_plain_and_holds_no_password(url: str) -> None:
    with pytest.raises(ValidationError):
        settings(usage_url=url)


async def test_what_is_not_set_up_is_not_asked() -> None:
    ports = open_serving(settings(), Policy())
    assert isinstance(ports.secrets, NoSecrets)
    assert isinstance(ports.usage, NoUsageSink)
    await ports.close()


async def test_a_usage_address_is_told() -> None:
    ports = open_serving(settings(usage_url="https://usage.example.net/hours"), Policy())
    assert isinstance(ports.usage, HttpUsageSink)
    await ports.close()


async def test_a_secrets_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "secrets.json"
    file.write_text('{"url": "https://bao.example.net", "secret_id": "do-not-show"}')
    with pytest.raises(SecretsFileRefused, match=r"secrets\.json") as refused:
        open_serving(settings(secrets_file=file), Policy())
    assert "do-not-show" not in str(refused.value)

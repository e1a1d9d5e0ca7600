"""Credentials from a real OpenBao: short-lived, read by a narrow role, told fast when they cannot be had."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from activities.secrets.openbao import OpenBaoSecrets
from activities.secrets.ports import NoCredential, SecretsUnavailable
from activities.secrets.settings import (
    SecretsFileRefused,
    SecretsSettings,
    read_secrets_settings,
)
from lab.secrets import SecretsServer

VALUE = "cr3dential-0f-gpu-7"
TENANT, POOL = "platform", "eu-north-h1-g2-l"


class Moving:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.at

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretsServer]:
    with SecretsServer(tmp_path_factory.mktemp("bao")) as own:
        own.put(TENANT, POOL, VALUE)
        yield own


@pytest.fixture
def clock() -> Moving:
    return Moving()


@pytest.fixture
def opened(clock: Moving) -> Iterator[Callable[..., OpenBaoSecrets]]:
    made: list[OpenBaoSecrets] = []

    def open_at(server: SecretsServer, **changes: object) -> OpenBaoSecrets:
        settings = read_secrets_settings(server.settings_file).model_copy(update=changes)
        made.append(OpenBaoSecrets(settings, now=clock))
        return made[-1]

    yield open_at
    for one in made:
        one.close()


Opened = Callable[..., OpenBaoSecrets]


async def test_a_credential_is_good_for_minutes(bao: SecretsServer, opened: Opened, clock: Moving) -> None:
    found = await opened(bao).endpoint_credential(TENANT, POOL)
    assert found.token.get_secret_value() == VALUE
    assert found.expires_at - clock() == timedelta(minutes=5)


async def test_a_pool_without_one_is_told_apart(bao: SecretsServer, opened: Opened) -> None:
    secrets = opened(bao)
    bao.write("pools/platform/odd", {"password": VALUE})
    bao.write("pools/platform/empty", {"token": ""})
    for pool_id in ("nobody", "odd", "empty", "../../sys", "a/b", "A", ""):
        with pytest.raises(NoCredential) as told:
            await secrets.endpoint_credential(TENANT, pool_id)
        assert VALUE not in str(told.value)
    with pytest.raises(NoCredential):
        await secrets.endpoint_credential("other-tenant", POOL)


async def test_what_was_read_is_kept_for_seconds_and_no_longer(
    bao: SecretsServer, opened: Opened, clock: Moving
) -> None:
    secrets = opened(bao)
    bao.put(TENANT, "rotated", "first")
    assert (await secrets.endpoint_credential(TENANT, "rotated")).token.get_secret_value() == "first"
    bao.put(TENANT, "rotated", "second")
    clock.move(4)
    assert (await secrets.endpoint_credential(TENANT, "rotated")).token.get_secret_value() == "first"
    clock.move(2)
    assert (await secrets.endpoint_credential(TENANT, "rotated")).token.get_secret_value() == "second"


async def test_an_old_credential_is_told_once_by_its_path(
    bao: SecretsServer, opened: Opened, clock: Moving
) -> None:
    clock.move(91 * 86_400)
    secrets = opened(bao)
    with capture_logs() as lines:
        for _ in range(3):
            await secrets.endpoint_credential(TENANT, POOL)
            clock.move(6)
    (line,) = lines
    assert (line["event"], line["path"], line["days"]) == (
        "endpoint_credential_old",
        f"pools/{TENANT}/{POOL}",
        91,
    )


async def test_a_token_that_was_taken_away_is_replaced(bao: SecretsServer, opened: Opened) -> None:
    secrets = opened(bao, cache_seconds=0)
    await secrets.endpoint_credential(TENANT, POOL)
    before = secrets._bao._signed_in
    assert before is not None
    secrets._bao.client(before.token).auth.token.revoke_self()
    await secrets.endpoint_credential(TENANT, POOL)
    assert secrets._bao._signed_in is not None
    assert secrets._bao._signed_in.token != before.token


async def test_tokens_of_ours_last_an_hour_and_are_replaced_at_half_of_it(
    bao: SecretsServer, opened: Opened, clock: Moving
) -> None:
    secrets = opened(bao, cache_seconds=0)
    await secrets.endpoint_credential(TENANT, POOL)
    first = secrets._bao._signed_in
    clock.move(29 * 60)
    await secrets.endpoint_credential(TENANT, POOL)
    assert secrets._bao._signed_in == first
    clock.move(2 * 60)
    await secrets.endpoint_credential(TENANT, POOL)
    assert secrets._bao._signed_in != first


async def test_the_role_reads_endpoints_and_nothing_else(bao: SecretsServer, opened: Opened) -> None:
    secrets = opened(bao, prefix="other")
    with pytest.raises(SecretsUnavailable) as told:
        await secrets.endpoint_credential(TENANT, POOL)
    assert "Forbidden" in str(told.value)


async def test_a_token_file_is_read_anew_each_time(
    bao: SecretsServer, opened: Opened, tmp_path: Path
) -> None:
    by_role = opened(bao)
    await by_role.endpoint_credential(TENANT, POOL)
    assert by_role._bao._signed_in is not None
    token_file = tmp_path / "token"
    token_file.write_text("wr0ng")
    secrets = opened(bao, role_id=None, secret_id=None, token_file=token_file, cache_seconds=0)
    with pytest.raises(SecretsUnavailable):
        await secrets.endpoint_credential(TENANT, POOL)
    token_file.write_text(f"{by_role._bao._signed_in.token}\n")
    assert (await secrets.endpoint_credential(TENANT, POOL)).token.get_secret_value() == VALUE
    token_file.unlink()
    with pytest.raises(SecretsUnavailable):
        await secrets.endpoint_credential(TENANT, POOL)


async def test_a_service_that_is_gone_or_hangs_is_told_within_two_seconds(
    tmp_path: Path, opened: Opened
) -> None:
    with SecretsServer(tmp_path / "bao") as own:
        own.put(TENANT, POOL, VALUE)
        secrets = opened(own, cache_seconds=0)
        await secrets.endpoint_credential(TENANT, POOL)
        own.pause()
        started = time.monotonic()
        answers = await asyncio.gather(
            *(secrets.endpoint_credential(TENANT, POOL) for _ in range(12)), return_exceptions=True
        )
        assert time.monotonic() - started < 2
        assert all(isinstance(one, SecretsUnavailable) for one in answers)
        own.pause(paused=False)
        own.kill()
        with pytest.raises(SecretsUnavailable):
            await secrets.endpoint_credential(TENANT, POOL)


async def test_nothing_secret_is_in_logs_reprs_or_errors(
    tmp_path: Path, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with SecretsServer(tmp_path / "bao") as own, capture_logs() as lines:
        own.put(TENANT, POOL, VALUE)
        secrets = opened(own, cache_seconds=0)
        found = await secrets.endpoint_credential(TENANT, POOL)
        settings = json.loads(own.settings_file.read_text())
        assert secrets._bao._signed_in is not None
        hidden = [VALUE, settings["secret_id"], secrets._bao._signed_in.token]
        own.kill()
        with pytest.raises(SecretsUnavailable) as told:
            await secrets.endpoint_credential(TENANT, POOL)
        shown = [caplog.text, str(lines), repr(found), str(found), found.model_dump_json(), repr(secrets)]
        shown += [str(told.value), repr(told.value), repr(secrets._settings), repr(own._writer)]
        shown.append((own.folder / "openbao.log").read_text())
        for one in hidden:
            assert all(one not in text for text in shown)


def test_no_secret_of_the_laboratory_stands_in_a_command_line(bao: SecretsServer) -> None:
    assert bao.identity is not None
    command = Path(f"/proc/{bao.identity.pid}/cmdline").read_bytes().decode().split("\0")
    assert command[1:-1] == ["server", f"-config={bao.folder / 'openbao.hcl'}"]
    assert "token" not in (bao.folder / "openbao.hcl").read_text()
    assert bao.settings_file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "http://bao.example.net"},
        {"url": "https://user:pw@bao.example.net"},
        {"secret_id": None},
        {"token_file": "/run/token"},
        {"role_id": None, "secret_id": None},
        {"prefix": "../sys"},
        {"answer_seconds": 5},
        {"colour": "red"},
    ],
)
def test_settings_have_one_way_in_over_a_safe_wire(changes: dict[str, object]) -> None:
    good: dict[str, object] = {
        "url": "https://bao.example.net:8200",
        "role_id": "reader",
        "secret_id": "v3ry-secret",
    }
    SecretsSettings.model_validate(good)
    with pytest.raises(ValidationError) as told:
        SecretsSettings.model_validate(good | changes)
    assert "v3ry-secret" not in str(told.value)


def test_a_file_that_cannot_be_used_is_refused_without_its_values(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    with pytest.raises(SecretsFileRefused, match="cannot be read"):
        read_secrets_settings(path)
    path.write_text('{"url": "ftp://x", "secret_id": "v3ry-secret"}')
    with pytest.raises(SecretsFileRefused, match="url") as told:
        read_secrets_settings(path)
    assert "v3ry-secret" not in str(told.value)

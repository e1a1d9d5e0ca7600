"""Processes refuse a login that sees more rows than it may, or fewer than it must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from store.engine import async_url
from store.roles import SERVICE_ROLE, TENANT_ROLE, WrongRole, require_role
from tests.database import opened

PASSWORD = "only-in-this-test"


@contextmanager
def login(dsn: str, name: str, *options: str) -> Iterator[str]:
    """The DSN of a login made with these options, which is gone afterwards."""
    made = "CREATE ROLE {} LOGIN PASSWORD {} " + " ".join(options)
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(sql.SQL(made).format(sql.Identifier(name), sql.Literal(PASSWORD)))
        try:
            url = async_url(dsn).set(drivername="postgresql", username=name, password=PASSWORD)
            yield url.render_as_string(hide_password=False)
        finally:
            owner.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(sql.Identifier(name)))
            owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
            owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


async def refused(dsn: str, wanted: str) -> str:
    async with opened(dsn) as engine:
        with pytest.raises(WrongRole) as caught:
            await require_role(engine, wanted)
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("wanted", [TENANT_ROLE, SERVICE_ROLE])
async def test_a_plain_member_is_let_in(dsn: str, wanted: str) -> None:
    with login(dsn, "sco_try_plain", f"IN ROLE {wanted}") as own:
        async with opened(own) as engine:
            await require_role(engine, wanted)


@pytest.mark.parametrize("wanted", [TENANT_ROLE, SERVICE_ROLE])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("SUPERUSER",), "is a superuser"),
        (("BYPASSRLS",), "has BYPASSRLS"),
        (("CREATEROLE",), "may create roles"),
    ],
)
async def test_a_login_that_is_not_bound_is_refused(
    dsn: str, wanted: str, options: tuple[str, ...], words: str
) -> None:
    with login(dsn, "sco_try_strong", *options, f"IN ROLE {wanted}") as own:
        assert words in await refused(own, wanted)


async def test_an_owner_of_one_table_is_refused(dsn: str) -> None:
    with (
        login(dsn, "sco_try_owner", f"IN ROLE {TENANT_ROLE}") as own,
        psycopg.connect(dsn, autocommit=True) as owner,
    ):
        owner.execute("ALTER TABLE warm_requests OWNER TO sco_try_owner")
        try:
            assert "owns tables" in await refused(own, TENANT_ROLE)
        finally:
            owner.execute("ALTER TABLE warm_requests OWNER TO sco_owner")


async def test_a_member_of_the_owner_is_refused(dsn: str) -> None:
    with login(dsn, "sco_try_heir", f"IN ROLE {TENANT_ROLE}, sco_owner") as own:
        assert "owns tables" in await refused(own, TENANT_ROLE)


async def test_a_stranger_is_told_which_role_is_missing(dsn: str) -> None:
    with login(dsn, "sco_try_stranger") as own:
        assert f"does not belong to {SERVICE_ROLE}" in await refused(own, SERVICE_ROLE)
        assert f"does not belong to {TENANT_ROLE}" in await refused(own, TENANT_ROLE)


async def test_the_api_refuses_to_see_every_tenant(dsn: str) -> None:
    with login(dsn, "sco_try_both", f"IN ROLE {TENANT_ROLE}, {SERVICE_ROLE}") as own:
        assert "sees the rows of every tenant" in await refused(own, TENANT_ROLE)


async def test_a_superuser_that_works_as_the_role_is_refused(dsn: str) -> None:
    async with opened(dsn, role=TENANT_ROLE) as engine:
        with pytest.raises(WrongRole, match="is a superuser"):
            await require_role(engine, TENANT_ROLE)

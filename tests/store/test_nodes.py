"""Nodes in the store: apart by tenant, one identity each, and what is remembered stays bounded."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from store import nodes
from store.engine import Engine, of_tenant
from store.nodes import Node, Registration, Revocation, Seen
from tests.activities.deciding import Placer, halls
from tests.estates import START, TENANT, Estate
from wire.events import NODE_REVOKED

SERVER, OTHER = "server-1", "server-2"
LIFE = timedelta(minutes=15)
WINDOW = timedelta(minutes=2)
A, B = "a" * 64, "b" * 64
NODE = Node(TENANT, SERVER, "key")


@pytest.fixture
async def launched(estate: Estate) -> Estate:
    await estate.open(halls())
    await estate.workload()
    await estate.claim(6)
    await Placer(estate).decide()
    for server in (SERVER, OTHER):
        await estate.rows(
            "UPDATE instances SET server_id = :server, state = 'active' WHERE slot_key ="
            " (SELECT min(slot_key) FROM instances WHERE server_id IS NULL)",
            server=server,
        )
    return estate


async def issue(engine: Engine, token: str, server: str = SERVER) -> bool:
    async with engine.begin() as connection:
        return await nodes.issue_token(
            connection, tenant_id=TENANT, instance_id=server, token_sha256=token, now=START, life=LIFE
        )


async def register(engine: Engine, token: str, key: str, server: str = SERVER) -> Registration:
    async with engine.begin() as connection:
        return await nodes.register(
            connection,
            tenant_id=TENANT,
            instance_id=server,
            token_sha256=token,
            public_key=key,
            now=START + timedelta(minutes=1),
        )


async def test_the_two_lookups_tell_one_fact_about_one_id_to_whoever_asks(
    launched: Estate, tenant_engine: Engine
) -> None:
    """Nothing else is seen without a tenant."""
    await issue(launched.engine, A)
    await register(launched.engine, A, "key")
    async with tenant_engine.connect() as connection:
        assert await nodes.tenant_of_server(connection, SERVER) == TENANT
        assert await nodes.tenant_of_server(connection, "unknown") is None
        assert await nodes.find_node(connection, SERVER) == NODE
        assert await nodes.find_node(connection, OTHER) is None
        for table in ("node_identities", "node_tokens", "bundles", "node_nonces", "instances"):
            assert (await connection.execute(sa.text(f"SELECT count(*) FROM {table}"))).scalar_one() == 0


async def test_nobody_else_may_call_the_lookups(launched: Estate) -> None:
    query = sa.text(
        """
        SELECT p.proname, coalesce(array_to_string(p.proacl, ','), 'everybody'), p.prosecdef,
               array_to_string(p.proconfig, ',')
        FROM pg_proc p WHERE p.proname IN ('sco_node', 'sco_tenant_of_server')
        """
    )
    async with launched.engine.connect() as connection:
        found = (await connection.execute(query)).all()
    assert len(found) == 2
    for _, rights, definer, config in found:
        assert definer
        assert config.startswith("search_path=")
        granted = {one.partition("=")[0] for one in rights.split(",")}
        assert {"sco_tenant", "sco_service"} <= granted
        assert "" not in granted, "PUBLIC may not"


async def test_a_tenant_touches_the_nodes_of_no_other(launched: Estate, tenant_engine: Engine) -> None:
    await issue(launched.engine, A)
    await register(launched.engine, A, "key")
    other = of_tenant(tenant_engine, "tenant-b")
    assert await register(other, A, "stolen") is Registration.NOT_ISSUED
    with pytest.raises(nodes.UnknownNode):
        async with other.begin() as connection:
            await nodes.revoke(connection, TENANT, SERVER, by="eve", at=START)
    with pytest.raises(DBAPIError):
        await issue(other, B)


async def test_the_first_of_two_registrations_at_once_wins(launched: Estate) -> None:
    await issue(launched.engine, A)
    await issue(launched.engine, B)
    answers = await asyncio.gather(
        *(
            register(launched.engine, token, key)
            for token, key in ((A, "k1"), (A, "k2"), (B, "k3"), (B, "k4"))
        )
    )
    assert answers.count(Registration.DONE) == 1
    assert answers.count(Registration.KNOWN_OTHERWISE) == 3
    assert await launched.value("SELECT count(*) FROM node_identities") == 1


async def test_a_key_is_one_instances_alone_even_at_once(launched: Estate) -> None:
    await issue(launched.engine, A, SERVER)
    await issue(launched.engine, B, OTHER)
    answers = await asyncio.gather(
        register(launched.engine, A, "same", SERVER), register(launched.engine, B, "same", OTHER)
    )
    assert sorted(answers) == [Registration.DONE, Registration.KEY_TAKEN]


async def test_a_known_instance_gets_no_token_and_a_revoked_one_neither(launched: Estate) -> None:
    assert await issue(launched.engine, A)
    assert await register(launched.engine, A, "key") is Registration.DONE
    assert not await issue(launched.engine, B)
    async with launched.engine.begin() as connection:
        await nodes.revoke(connection, TENANT, SERVER, by="ada", at=START)
    assert not await issue(launched.engine, B)
    assert await register(launched.engine, A, "key") is Registration.KEY_TAKEN


async def test_of_two_revocations_at_once_one_is_told_and_both_agree(launched: Estate) -> None:
    await issue(launched.engine, A)
    await register(launched.engine, A, "key")

    async def revoke(by: str) -> Revocation:
        async with launched.engine.begin() as connection:
            return await nodes.revoke(connection, TENANT, SERVER, by=by, at=START)

    first, second = await asyncio.gather(revoke("ada"), revoke("bob"))
    assert first == second
    told = await launched.rows(
        "SELECT key, payload->>'revokedBy' FROM outbox WHERE topic = :t", t=NODE_REVOKED
    )
    assert told == [(SERVER, first.by)]


async def test_who_has_no_identity_cannot_lose_it(launched: Estate) -> None:
    for server, refusal in ((SERVER, nodes.NotRegistered), ("unknown", nodes.UnknownNode)):
        with pytest.raises(refusal, match=server):
            async with launched.engine.begin() as connection:
                await nodes.revoke(connection, TENANT, server, by="ada", at=START)
    assert await launched.value("SELECT count(*) FROM outbox WHERE topic = :t", t=NODE_REVOKED) == 0


async def remember(engine: Engine, nonce: str, at_seconds: float = 0, node: Node = NODE) -> Seen:
    now = START + timedelta(seconds=at_seconds)
    async with engine.begin() as connection:
        return await nodes.remember_request(connection, node, nonce=nonce, now=now, until=now + WINDOW)


async def test_of_the_same_request_at_once_one_is_the_first(launched: Estate) -> None:
    answers = await asyncio.gather(*(remember(launched.engine, "n" * 16) for _ in range(8)))
    assert sorted(answers) == [Seen.NEW] + [Seen.REPLAYED] * 7
    assert await remember(launched.engine, "n" * 16, node=NODE._replace(instance_id=OTHER)) is Seen.NEW


async def test_old_requests_are_forgotten_whoever_made_them(launched: Estate) -> None:
    for number in range(30):
        await remember(launched.engine, f"nonce-{number:010}", node=NODE._replace(instance_id=f"s{number}"))
    later = WINDOW.total_seconds() + 1
    for number in range(3):
        assert await remember(launched.engine, f"later-{number:010}", later) is Seen.NEW
    left = await launched.value("SELECT count(*) FROM node_nonces")
    assert left == 3


@pytest.mark.parametrize(
    "values",
    [
        "'platform', 'plain text', 'x', now(), now() + interval '1 h'",
        f"'platform', '{A}', 'x', now(), now()",
        f"NULL, '{A}', 'x', now(), now() + interval '1 h'",
    ],
)
async def test_a_token_is_kept_as_a_digest_that_ends(launched: Estate, values: str) -> None:
    with pytest.raises(DBAPIError):
        await launched.rows(
            "INSERT INTO node_tokens (tenant_id, token_sha256, instance_id, issued_at, expires_at)"
            f" VALUES ({values})"
        )

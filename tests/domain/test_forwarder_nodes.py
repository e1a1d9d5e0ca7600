"""Which node of a scheduler an instance is: by the provider's name of its server, where that is one's own."""

from __future__ import annotations

from domain.forwarder_nodes import LeftOutAs, LiveServer, forwarder_nodes


def test_a_registered_server_is_the_node_of_its_name() -> None:
    found = forwarder_nodes([LiveServer("b", "n2", "key-b"), LiveServer("a", "n1", "key-a")])
    assert [tuple(one) for one in found.nodes] == [("a", "n1", "key-a"), ("b", "n2", "key-b")]
    assert found.left_out == ()


def test_a_server_without_an_identity_is_no_node_and_none_that_is_missed() -> None:
    assert forwarder_nodes([LiveServer("a", "n1", None)]) == ((), ())


def test_servers_of_one_name_are_not_told_apart_even_if_only_one_is_registered() -> None:
    found = forwarder_nodes([LiveServer("a", "n1", "key"), LiveServer("b", "n1", None)])
    assert found.nodes == ()
    assert [tuple(one) for one in found.left_out] == [("a", "n1", LeftOutAs.SHARED_NAME)]


def test_what_cannot_be_a_name_of_a_node_is_left_out() -> None:
    names = ("n[1-3]", "n1,n2", "-n", "", "n" * 64, "n 1", "n1\n", "ñ")
    found = forwarder_nodes([LiveServer(str(place), name, "key") for place, name in enumerate(names)])
    assert found.nodes == ()
    assert [one.reason for one in found.left_out] == [LeftOutAs.NO_NODE_NAME] * len(names)
    (missing,) = forwarder_nodes([LiveServer("a", None, "key")]).left_out
    assert missing.reason is LeftOutAs.NO_NAME_YET

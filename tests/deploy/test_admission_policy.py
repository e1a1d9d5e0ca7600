"""The admission policies decide as they say: every expression is evaluated over what agents might try."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from cel_expr_python import cel  # type: ignore[import-untyped]

from tests.deploy.test_kubernetes_manifests import ACCOUNT, NODE_NAME, POLICIES

OWN, OTHER = "n1", "n2"
NODES, PODS, EVICTIONS = "sco-agent-own-node", "sco-agent-own-pods", "sco-agent-own-evictions"
ALLOWED: list[str] = []
NOT_BOUND = "the token of an agent must be bound to a node"
OTHERS_NODE = "an agent may change its own node only"
OTHERS_TAINTS = "of its node's taints an agent may change sco.reclaim only"
OTHERS_NOTES = "of its node's annotations an agent may change sco.reclaim/owner and sco.reclaim/until only"
MORE_THAN_MARKS = "an agent may change nothing of its node but the mark of a drain"
OTHERS_PODS = "an agent may delete pods of its own node only"
NO_UID = "an agent must name the uid of the pod that it evicts"
OTHERS_EVICTION = "an agent may evict pods of its own node only"
MARK = {"key": "sco.reclaim", "value": "sco-1", "effect": "NoSchedule"}
THEIRS = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
NAMES = ("object", "oldObject", "request", "params", "variables")
ENVIRONMENT = cel.NewEnv(variables=dict.fromkeys(NAMES, cel.Type.DYN))
Json = dict[str, Any]


class Asked(NamedTuple):
    """What reaches the API server; `params` are the pods that a policy with parameters is evaluated for."""

    request: Json
    object: Json | None = None
    old: Json | None = None
    params: tuple[Json, ...] = ()


def evaluated(expression: str, names: Json) -> Any:
    """The value in plain words; an error of the expression where it fails."""
    return ENVIRONMENT.compile(expression).eval(data=names).plain_value()


def failed(expression: str, names: Json) -> bool:
    return bool(ENVIRONMENT.compile(expression).eval(data=names).type() == cel.Type.ERROR)


def refusals(policy: str, asked: Asked) -> list[str] | None:
    """Why the request is denied, in words of the policy; None when the policy is not about who asks."""
    spec = POLICIES[policy]["spec"]
    names: Json = {"request": asked.request, "object": asked.object, "oldObject": asked.old, "params": None}
    if not all(evaluated(one["expression"], names) is True for one in spec["matchConditions"]):
        return None
    if "paramKind" not in spec:
        return _denied(spec, names)
    if not asked.params:
        return ["no parameter"]
    return sorted({why for pod in asked.params for why in _denied(spec, names | {"params": pod})})


def _denied(spec: Json, names: Json) -> list[str]:
    """What does not hold; under `failurePolicy: Fail` an expression that fails does not."""
    known: Json = {}
    for variable in spec["variables"]:
        within = names | {"variables": known}
        if not failed(variable["expression"], within):
            known[variable["name"]] = evaluated(variable["expression"], within)
    return [
        one["message"]
        for one in spec["validations"]
        if evaluated(one["expression"], names | {"variables": known}) is not True
    ]


def request(operation: str, name: str, *, user: str = ACCOUNT, node: str | None = OWN) -> Json:
    who: Json = {"username": user}
    if node is not None:
        who["extra"] = {NODE_NAME: [node]}
    return {"operation": operation, "name": name, "userInfo": who}


def a_node(name: str = OWN, **fields: Any) -> Json:
    """A node with a label and a note of somebody else; fields are those of its spec, or parts of it."""
    meta = {"name": name, "labels": {"zone": "a"}, "annotations": {"kubelet/x": "1"}} | fields.pop("meta", {})
    return {"metadata": {key: value for key, value in meta.items() if value is not None}, "spec": fields}


def a_pod(name: str, node: str | None, uid: str = "u1") -> Json:
    return {
        "metadata": {"name": name, "uid": uid, "namespace": "default"},
        "spec": {"nodeName": node} if node else {},
    }


def an_eviction(name: str, uid: str | None = "u1") -> Json:
    eviction: Json = {"metadata": {"name": name, "namespace": "default"}}
    if uid is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": 30, "preconditions": {"uid": uid}}
    return eviction


def update(old: Json, new: Json, **who: Any) -> Asked:
    return Asked(request("UPDATE", old["metadata"]["name"], **who), new, old)


def noted(**notes: str) -> Json:
    return {"annotations": {"kubelet/x": "1"} | {name.replace("__", "/"): notes[name] for name in notes}}


MARKED = a_node(
    taints=[THEIRS, MARK],
    meta={"annotations": {"kubelet/x": "1", "sco.reclaim/owner": "a", "sco.reclaim/until": "b"}},
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (a_node(taints=[THEIRS]), MARKED),
        (MARKED, a_node(taints=[THEIRS])),
        (MARKED, a_node(taints=[THEIRS, MARK | {"value": "sco-2"}], meta=MARKED["metadata"])),
        (a_node(taints=[MARK]), a_node()),
        (a_node(), a_node(taints=[MARK])),
        (a_node(meta={"annotations": None}), a_node(meta={"annotations": {"sco.reclaim/owner": "a"}})),
        (a_node(meta={"annotations": {"sco.reclaim/owner": "a"}}), a_node(meta={"annotations": None})),
        (a_node(meta={"labels": None}), a_node(meta={"labels": None})),
        (a_node(unschedulable=True, taints=[THEIRS]), a_node(unschedulable=True, taints=[THEIRS, MARK])),
        (a_node(), a_node(unschedulable=False)),
    ],
)
def test_an_agent_sets_and_takes_back_the_mark_of_its_own_node(old: Json, new: Json) -> None:
    assert refusals(NODES, update(old, new)) == ALLOWED


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (a_node(taints=[THEIRS]), a_node(taints=[]), OTHERS_TAINTS),
        (a_node(taints=[THEIRS]), a_node(), OTHERS_TAINTS),
        (a_node(), a_node(taints=[THEIRS]), OTHERS_TAINTS),
        (a_node(taints=[THEIRS]), a_node(taints=[THEIRS | {"effect": "NoExecute"}, MARK]), OTHERS_TAINTS),
        (a_node(), a_node(taints=[{"key": "sco.reclaim.more", "effect": "NoExecute"}]), OTHERS_TAINTS),
        (a_node(), a_node(meta=noted(kubelet__y="1")), OTHERS_NOTES),
        (a_node(meta=noted(kubelet__y="1")), a_node(), OTHERS_NOTES),
        (a_node(), a_node(meta={"annotations": {"kubelet/x": "2"}}), OTHERS_NOTES),
        (a_node(), a_node(meta={"annotations": None}), OTHERS_NOTES),
        (a_node(), a_node(meta={"annotations": {"kubelet/x": "1", "sco.reclaim/more": "1"}}), OTHERS_NOTES),
        (a_node(), a_node(unschedulable=True), MORE_THAN_MARKS),
        (a_node(unschedulable=True), a_node(), MORE_THAN_MARKS),
        (a_node(), a_node(meta={"labels": {"zone": "b"}}), MORE_THAN_MARKS),
        (a_node(), a_node(meta={"labels": None}), MORE_THAN_MARKS),
        (a_node(), a_node(meta={"finalizers": ["x/y"]}), MORE_THAN_MARKS),
        (a_node(meta={"finalizers": ["x/y"]}), a_node(), MORE_THAN_MARKS),
        (a_node(), a_node(meta={"ownerReferences": [{"uid": "1"}]}), MORE_THAN_MARKS),
        (
            a_node(meta={"ownerReferences": [{"uid": "1"}]}),
            a_node(meta={"ownerReferences": [{"uid": "2"}]}),
            MORE_THAN_MARKS,
        ),
    ],
)
def test_an_agent_changes_nothing_else_of_its_node(old: Json, new: Json, why: str) -> None:
    assert refusals(NODES, update(old, new)) == [why]


def test_an_agent_changes_no_other_node_and_neither_makes_nor_deletes_one() -> None:
    assert refusals(NODES, update(a_node(OTHER), deepcopy(MARKED) | {"spec": {"taints": [MARK]}})) == [
        OTHERS_NODE
    ]
    same = a_node()
    for operation in ("CREATE", "DELETE", "CONNECT"):
        denied = refusals(NODES, Asked(request(operation, OWN), same, same))
        assert denied == [OTHERS_NODE], operation


@pytest.mark.parametrize("operation", ["CREATE", "DELETE"])
def test_what_cannot_be_compared_is_denied(operation: str) -> None:
    made = a_node()
    asked = Asked(request(operation, OWN), *((made, None) if operation == "CREATE" else (None, made)))
    denied = refusals(NODES, asked)
    assert denied == [OTHERS_NODE, OTHERS_TAINTS, OTHERS_NOTES, MORE_THAN_MARKS]


@pytest.mark.parametrize(
    ("pod", "operation", "denied"),
    [
        (a_pod("p", OWN), "DELETE", ALLOWED),
        (a_pod("p", OTHER), "DELETE", [OTHERS_PODS]),
        (a_pod("p", None), "DELETE", [OTHERS_PODS]),
        (a_pod("p", ""), "DELETE", [OTHERS_PODS]),
        (a_pod("p", OWN), "UPDATE", [OTHERS_PODS]),
        (a_pod("p", OWN), "CREATE", [OTHERS_PODS]),
    ],
)
def test_an_agent_deletes_pods_of_its_own_node_and_changes_none(
    pod: Json, operation: str, denied: list[str]
) -> None:
    assert refusals(PODS, Asked(request(operation, "p"), None, pod)) == denied


HERE, THERE, WAITING = a_pod("here", OWN, "u1"), a_pod("there", OTHER, "u2"), a_pod("waits", None, "u3")


@pytest.mark.parametrize(
    ("eviction", "denied"),
    [
        (an_eviction("here"), ALLOWED),
        (an_eviction("here", "u2"), [OTHERS_EVICTION]),
        (an_eviction("there", "u2"), [OTHERS_EVICTION]),
        (an_eviction("there", "u1"), [OTHERS_EVICTION]),
        (an_eviction("waits", "u3"), [OTHERS_EVICTION]),
        (an_eviction("here", None), sorted([NO_UID, OTHERS_EVICTION])),
        (an_eviction("here") | {"deleteOptions": {}}, sorted([NO_UID, OTHERS_EVICTION])),
        (an_eviction("here") | {"deleteOptions": {"preconditions": {}}}, sorted([NO_UID, OTHERS_EVICTION])),
        (an_eviction("here", ""), sorted([NO_UID, OTHERS_EVICTION])),
    ],
)
def test_an_agent_evicts_the_very_pods_of_its_own_node(eviction: Json, denied: list[str]) -> None:
    asked = Asked(request("CREATE", eviction["metadata"]["name"]), eviction, None, (HERE, THERE, WAITING))
    assert refusals(EVICTIONS, asked) == denied


def test_an_eviction_without_any_pod_to_compare_with_is_denied() -> None:
    asked = Asked(request("CREATE", "here"), an_eviction("here"))
    assert refusals(EVICTIONS, asked) == ["no parameter"]


EVERY = [
    (NODES, update(a_node(), a_node(taints=[MARK]))),
    (PODS, Asked(request("DELETE", "here"), None, HERE)),
    (EVICTIONS, Asked(request("CREATE", "here"), an_eviction("here"), None, (HERE,))),
]


def test_every_policy_is_evaluated_here() -> None:
    assert {policy for policy, _ in EVERY} == set(POLICIES)


@pytest.mark.parametrize(("policy", "asked"), EVERY)
def test_a_token_that_names_no_node_may_do_nothing(policy: str, asked: Asked) -> None:
    assert refusals(policy, asked) == ALLOWED
    for who in ({"username": ACCOUNT}, {"username": ACCOUNT, "extra": {"other": ["x"]}}):
        denied = refusals(policy, asked._replace(request=asked.request | {"userInfo": who}))
        assert denied is not None
        assert NOT_BOUND in denied


@pytest.mark.parametrize(("policy", "asked"), EVERY)
def test_a_token_of_another_node_may_do_nothing_here(policy: str, asked: Asked) -> None:
    who = {"username": ACCOUNT, "extra": {NODE_NAME: [OTHER]}}
    assert refusals(policy, asked._replace(request=asked.request | {"userInfo": who}))


@pytest.mark.parametrize(("policy", "asked"), EVERY)
def test_nobody_but_agents_is_held_back(policy: str, asked: Asked) -> None:
    for name in ("system:node:n1", "kubernetes-admin", "system:serviceaccount:other:sco-agent"):
        assert (
            refusals(policy, asked._replace(request=asked.request | {"userInfo": {"username": name}})) is None
        )

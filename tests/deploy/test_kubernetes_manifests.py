"""The manifests for Kubernetes fit together, and fit what the agent does: no right more, none unguarded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.drain.kube_marks import OWNER, TAINT, UNTIL

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
ACCOUNT = "system:serviceaccount:sco-agent:sco-agent"
NODE_NAME = "authentication.kubernetes.io/node-name"
# What the driver calls: get, list, watch and patch, the eviction, and the deletion at the edge.
RIGHTS = {
    "nodes": {"get", "patch"},
    "pods": {"get", "list", "watch", "delete"},
    "pods/eviction": {"create"},
}
READING = {"get", "list", "watch"}
OPERATIONS = {"patch": "UPDATE", "delete": "DELETE", "create": "CREATE"}


def manifests(file: str, kind: str) -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((FOLDER / file).read_text())
    return {found["metadata"]["name"]: found for found in documents if found["kind"] == kind}


POLICIES = manifests("policy.yaml", "ValidatingAdmissionPolicy")


def test_an_agent_has_the_rights_that_it_uses_and_no_other() -> None:
    role = manifests("agent.yaml", "ClusterRole")["sco-agent"]
    found = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert found == RIGHTS
    assert all(rule["apiGroups"] == [""] and "resourceNames" not in rule for rule in role["rules"])


def test_the_rights_go_to_the_account_whose_token_is_on_the_nodes() -> None:
    (subject,) = manifests("agent.yaml", "ClusterRoleBinding")["sco-agent"]["subjects"]
    daemon = manifests("agent.yaml", "DaemonSet")["sco-agent-token"]
    account = manifests("agent.yaml", "ServiceAccount")["sco-agent"]["metadata"]
    assert subject["name"] == account["name"] == daemon["spec"]["template"]["spec"]["serviceAccountName"]
    assert subject["namespace"] == account["namespace"] == daemon["metadata"]["namespace"]
    assert f"system:serviceaccount:{subject['namespace']}:{subject['name']}" == ACCOUNT


def test_every_change_that_an_agent_has_a_right_to_is_guarded_by_a_policy() -> None:
    guarded = {
        (resource, operation)
        for policy in POLICIES.values()
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    changes = {(name, OPERATIONS[verb]) for name, verbs in RIGHTS.items() for verb in verbs - READING}
    assert changes <= guarded


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_denies_what_it_cannot_judge_and_is_in_force(name: str) -> None:
    spec = POLICIES[name]["spec"]
    binding = manifests("policy.yaml", "ValidatingAdmissionPolicyBinding")[name]["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert binding["policyName"] == name
    assert "Deny" in binding["validationActions"]
    assert ("paramKind" in spec) == ("paramRef" in binding)
    assert binding.get("paramRef", {"parameterNotFoundAction": "Deny"})["parameterNotFoundAction"] == "Deny"
    assert [condition["expression"] for condition in spec["matchConditions"]] == [
        f'request.userInfo.username == "{ACCOUNT}"'
    ]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_node_is_that_of_the_token(name: str) -> None:
    spec = POLICIES[name]["spec"]
    own = next(variable for variable in spec["variables"] if variable["name"] == "own")
    assert NODE_NAME in own["expression"]
    first, *others = (validation["expression"] for validation in spec["validations"])
    assert first == 'variables.own != ""'
    assert any("== variables.own" in expression for expression in others)
    declared = {variable["name"] for variable in spec["variables"]}
    used = " ".join([first, *others])
    assert all(f"variables.{variable}" in used for variable in declared)


def test_the_policy_knows_the_marks_by_the_names_that_the_agent_writes() -> None:
    text = (FOLDER / "policy.yaml").read_text()
    assert text.count(f't.key != "{TAINT}"') == 2
    assert f'["{OWNER}", "{UNTIL}"]' in text

"""The alert rules are what Prometheus reads, ask for metrics that exist, and name a runbook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT
from tests.docs.test_reference import metrics_in_the_code

FOLDER = ROOT / "deploy" / "prometheus"
FILES = sorted(FOLDER.glob("*.rules.yml"))
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")
SUFFIXES = ("_bucket", "_sum", "_count")


def rules(file: Path) -> list[dict[str, Any]]:
    read = yaml.safe_load(file.read_text())
    assert set(read) == {"groups"}
    names = [group["name"] for group in read["groups"]]
    assert len(names) == len(set(names))
    return [rule for group in read["groups"] for rule in group["rules"]]


def named_metrics(expression: str) -> set[str]:
    found = re.findall(r"\b(?:sco|connectsoft)_[a-z0-9_]+", expression)
    return {name.removesuffix(next((s for s in SUFFIXES if name.endswith(s)), "")) for name in found}


def test_there_are_rules() -> None:
    assert [file.name for file in FILES if file.name == "outbox.rules.yml"]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_every_rule_is_an_alert_with_all_that_a_person_needs(file: Path) -> None:
    for rule in rules(file):
        assert set(rule) <= {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}
        assert re.fullmatch(r"[A-Z][A-Za-z]+", rule["alert"])
        assert DURATION.fullmatch(rule.get("for", "0s"))
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description", "runbook"} <= set(rule["annotations"])


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_an_expression_is_closed_and_asks_for_metrics_that_exist(file: Path) -> None:
    known = set(metrics_in_the_code())
    for rule in rules(file):
        expression = rule["expr"]
        for opening, closing in ("()", "[]", "{}"):
            assert expression.count(opening) == expression.count(closing), rule["alert"]
        asked = named_metrics(expression)
        assert asked, rule["alert"]
        assert asked <= known, rule["alert"]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_an_alert_leads_to_a_runbook_that_names_it(file: Path) -> None:
    for rule in rules(file):
        page = ROOT / rule["annotations"]["runbook"]
        assert page.is_relative_to(ROOT / "docs" / "runbooks")
        assert rule["alert"] in page.read_text(), rule["alert"]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
def test_every_alert_is_tried_out(file: Path) -> None:
    """By promtool, in the tests of `make test-real`: with one case where it fires and one where not."""
    tried = yaml.safe_load(file.with_name(file.name.replace(".rules.", ".test.")).read_text())
    assert tried["rule_files"] == [file.name]
    cases = [case for test in tried["tests"] for case in test["alert_rule_test"]]
    for rule in rules(file):
        fires = {bool(case["exp_alerts"]) for case in cases if case["alertname"] == rule["alert"]}
        assert fires == {True, False}, rule["alert"]

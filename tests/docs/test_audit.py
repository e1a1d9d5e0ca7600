"""The pages about audits say what the code says."""

from __future__ import annotations

import re

from activities.auditing import FINDS_PER_LOOK
from clients.cli.failures import Exit
from domain.audit import MAX_FINDINGS, AuditTerms, FindingKind, Verdict
from store.audit_facts import GAPS_FOR
from tests.docs.pages import read, rows, section

CONCEPT, HOWTO = "docs/concepts/audit.md", "docs/howto/audit-the-fleet.md"
RUNBOOK = "docs/runbooks/audit-findings.md"


def test_the_runbook_has_every_kind_once_with_what_to_do() -> None:
    found = rows(RUNBOOK, "Do")
    assert set(found) == {kind.value for kind in FindingKind}
    assert all(cell for cells in found.values() for cell in cells)


def test_every_kind_is_found_by_one_check() -> None:
    cells = re.findall(r"^\|[^|]+\|[^|]+\|([^|]+)\|$", section(CONCEPT, "What is checked"), re.MULTILINE)
    kinds = [kind for cell in cells for kind in re.findall(r"`(\w+)`", cell)]
    assert sorted(kinds) == sorted(kind.value for kind in FindingKind)


def test_every_verdict_has_its_exit_code() -> None:
    told = {name: cells[-1] for name, cells in rows(CONCEPT, "What an audit says").items()}
    codes = {Verdict.CLEAN: Exit.OK, Verdict.FINDINGS: Exit.FINDINGS, Verdict.FAILED: Exit.AUDIT_FAILED}
    assert told == {verdict.value: str(code.value) for verdict, code in codes.items()}


def test_the_figures_are_those_of_the_code() -> None:
    text = " ".join(read(CONCEPT).split())
    assert f"up to {FINDS_PER_LOOK} per look" in text
    assert f"in the last {AuditTerms().replan_seconds:g} seconds" in text
    assert f"first {MAX_FINDINGS:,} findings" in text
    assert f"last {GAPS_FOR.days} days" in text


def test_the_how_to_names_every_way_it_ends() -> None:
    codes = {int(code) for code in re.findall(r"^ +\| (\d) \|", read(HOWTO), re.MULTILINE)}
    assert codes == {Exit.OK, Exit.FINDINGS, Exit.AUDIT_FAILED, Exit.WAITED_TOO_LONG}

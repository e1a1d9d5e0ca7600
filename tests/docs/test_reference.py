"""The reference pages say what the code says: every setting, metric, reason and problem, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from activities.openstack.settings import CloudSettings
from agent.settings import PREFIX as AGENT_PREFIX
from agent.settings import AgentSettings
from api import problems
from api.contracts import ContractBody
from api.grpc.settings import GrpcSettings
from api.settings import ApiSettings
from clients.cli.credential import CLIENT, TOKEN, TOKEN_FILE
from clients.cli.failures import Exit
from domain.circuit import Outcome
from domain.claim import LeftOutReason
from domain.contract import TIER_FLOOR
from domain.policy import Policy
from domain.reasons import REASON_TEXT, SHORTFALL_TEXT, Reason, ShortfallReason
from tests.docs.pages import PAGES, ROOT, name_of, read, rows, section
from workers.settings import WorkerSettings

REFERENCE = "docs/reference/"
CODE = tuple(
    path
    for room in ("domain", "wire", "store", "activities", "workflows", "workers", "api", "agent", "clients")
    for path in sorted((ROOT / room).rglob("*.py"))
)
METRIC_KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Summary": "summary"}
# Families are read when they are asked for; those of counters leave the ending to the library.
FAMILY_KINDS = {"CounterMetricFamily": ("counter", "_total"), "GaugeMetricFamily": ("gauge", "")}
METRIC_PREFIXES = ("sco_", "connectsoft_factory_compute_pools_")
METRIC_NAME = re.compile(r"\bsco_[a-z0-9_]+_(?:total|seconds|ratio|waiting|alarm|bytes)\b")
LOG_METHODS = frozenset({"info", "warning", "error", "exception"})


def default_of(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.default
    if value is None or value == ():
        return "none"
    if value == "":
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def defaults(model: type[BaseModel], prefix: str = "", *, upper: bool = False) -> dict[str, str]:
    return {
        prefix + (name.upper() if upper else name): default_of(info)
        for name, info in model.model_fields.items()
    }


def own_defaults(model: type[BaseModel], base: type[BaseModel]) -> dict[str, str]:
    """What a process is told besides what another is told too."""
    known = defaults(base, "SCO_", upper=True)
    return {name: value for name, value in defaults(model, "SCO_", upper=True).items() if name not in known}


def documented_defaults(heading: str) -> dict[str, str]:
    return {name: cells[0] for name, cells in rows(f"{REFERENCE}settings.md", heading).items()}


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Worker", defaults(WorkerSettings, "SCO_", upper=True)),
        ("API", defaults(ApiSettings, "SCO_", upper=True)),
        ("gRPC", own_defaults(GrpcSettings, ApiSettings)),
        ("Agent", defaults(AgentSettings, AGENT_PREFIX, upper=True)),
        ("Cloud file", defaults(CloudSettings)),
        (
            "Policy",
            {
                name: default
                for part, info in Policy.model_fields.items()
                for name, default in defaults(type(info.default), f"{part}.").items()
            },
        ),
    ],
)
def test_every_setting_is_documented_with_its_default(heading: str, expected: dict[str, str]) -> None:
    assert documented_defaults(heading) == expected


def test_every_field_of_a_contract_file_is_documented_with_its_default() -> None:
    expected = {
        info.alias or name: default_of(info)
        for name, info in ContractBody.model_fields.items()
        if name != "contract_id"
    }
    assert documented_defaults("Contracts") == expected
    floors = ", ".join(str(int(share * 100)) for share in TIER_FLOOR.values())
    assert f"sets the least floor: {floors} %" in section(f"{REFERENCE}settings.md", "Contracts")


def test_every_variable_that_a_page_names_exists() -> None:
    known = set(defaults(WorkerSettings, "SCO_", upper=True)) | set(defaults(ApiSettings, "SCO_", upper=True))
    known |= set(defaults(GrpcSettings, "SCO_", upper=True))
    known |= set(defaults(AgentSettings, AGENT_PREFIX, upper=True))
    known |= {"SCO_SERVER", "SCO_EVENTS", "SCO_PROVIDER", "SCO_LIFECYCLE", TOKEN, TOKEN_FILE, *CLIENT}
    for page in PAGES:
        assert set(re.findall(r"\bSCO_[A-Z_]+[A-Z]\b", page.read_text())) <= known, name_of(page)


def test_every_reason_is_documented_with_its_text() -> None:
    pools = rows(f"{REFERENCE}reasons.md", "Pools")
    assert {name: cells[0] for name, cells in pools.items()} == {r.value: REASON_TEXT[r] for r in Reason}
    assert all(cells[1] for cells in pools.values())
    shortfalls = rows(f"{REFERENCE}reasons.md", "Shortfalls")
    assert {name: cells[0] for name, cells in shortfalls.items()} == {
        r.value: SHORTFALL_TEXT[r] for r in ShortfallReason
    }
    assert set(rows(f"{REFERENCE}reasons.md", "Left out of a claim")) == {r.value for r in LeftOutReason}


@pytest.mark.parametrize(
    ("page", "heading"), [("docs/concepts/placement.md", "Shortfall"), ("docs/runbooks/shortfall.md", "Do")]
)
def test_every_shortfall_has_a_remedy(page: str, heading: str) -> None:
    assert set(rows(page, heading)) == {reason.value for reason in ShortfallReason}


def test_every_problem_of_the_api_is_documented_with_its_status() -> None:
    kinds = {kind.reason: kind for kind in vars(problems).values() if isinstance(kind, problems.Kind)}
    found = rows(f"{REFERENCE}errors.md", "API")
    assert set(found) == set(kinds)
    for reason, cells in found.items():
        if reason != problems.CLIENT_ERROR.reason:
            assert cells[0].startswith(str(kinds[reason].status)), reason


def test_every_exit_code_is_documented() -> None:
    found = re.findall(r"^\| (\d+) \|", section(f"{REFERENCE}errors.md", "`sco`"), re.MULTILINE)
    assert [int(code) for code in found] == [*sorted(code.value for code in Exit), 130]


def calls(names: set[str] | frozenset[str]) -> Iterator[tuple[str, ast.Call]]:
    """Every call in the code of a function or method of one of these names."""
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
                if name in names:
                    yield name, node


def text_of(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def metrics_in_the_code() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each metric by name: its type and its labels."""
    found = {}
    for kind, call in calls(set(METRIC_KINDS)):
        name = text_of(call)
        if name is not None and name.startswith(METRIC_PREFIXES):
            labels: Any = ast.literal_eval(call.args[2]) if len(call.args) > 2 else ()
            found[name] = (METRIC_KINDS[kind], tuple(labels))
    for family, call in calls(set(FAMILY_KINDS)):
        name = text_of(call)
        kind, ending = FAMILY_KINDS[family]
        if name is not None:
            named = [one.value for one in call.keywords if one.arg == "labels"]
            found[name + ending] = (kind, tuple(ast.literal_eval(named[0])) if named else ())
    return found


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    page = read(f"{REFERENCE}metrics.md")
    table = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in table}
    assert documented == metrics_in_the_code()
    assert set(Outcome) <= set(re.findall(r"`(\w+)`", page))


def test_every_metric_that_a_page_names_exists() -> None:
    known = set(metrics_in_the_code())
    for page in PAGES:
        assert set(METRIC_NAME.findall(page.read_text())) <= known, name_of(page)


def log_lines_in_the_code() -> set[str]:
    return {text for _, call in calls(LOG_METHODS) if (text := text_of(call)) is not None}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "runbooks").glob("*.md")), ids=name_of)
def test_a_runbook_goes_from_the_symptom_to_the_end(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Symptom", "See", "Do", "Over when"]
    named = set(re.findall(r"logs? `(\w+)`", text)) | set(re.findall(r"`(worker_\w+|outbox_pump_\w+)`", text))
    assert named <= log_lines_in_the_code()


def test_the_runbooks_name_log_lines() -> None:
    texts = "".join(page.read_text() for page in (ROOT / "docs" / "runbooks").glob("*.md"))
    assert {"placement_queued", "outbox_pump_failed", "worker_started"} <= set(re.findall(r"`(\w+)`", texts))


def test_the_glossary_is_sorted_and_says_each_word_once() -> None:
    headings = re.findall(r"^## (.+)$", read("docs/glossary.md"), re.MULTILINE)
    assert headings == sorted(set(headings), key=str.casefold)
    for heading in headings:
        text = " ".join(section("docs/glossary.md", heading).split())
        assert 1 <= len(re.findall(r"\.(?: |$)", text)) <= 3, heading


def test_every_decision_is_listed_and_says_what_it_costs() -> None:
    listed = re.findall(r"\((\d{4}-[a-z0-9-]+\.md)\)", read("docs/adr/README.md"))
    files = sorted(path.name for path in (ROOT / "docs" / "adr").glob("0*.md"))
    assert listed == files
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    for name in files:
        text = read(f"docs/adr/{name}")
        assert text.startswith(f"# {name[:4]} ")
        assert all(f"**{part}.**" in text for part in ("Decision", "Why", "Costs", "Not chosen")), name

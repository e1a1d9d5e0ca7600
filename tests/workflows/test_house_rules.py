"""Rules of the house for every workflow, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import workflows

FOLDER = Path(workflows.__file__).parent
SOURCES = sorted(FOLDER.glob("*.py"))
DEFINING = [path for path in SOURCES if "@workflow.defn" in path.read_text()]
# asyncio's own helpers iterate sets or wait for real time; clocks and randomness differ on replay.
FORBIDDEN_CALLS = {
    *("asyncio.wait", "asyncio.as_completed", "asyncio.TaskGroup", "asyncio.to_thread"),
    *("datetime.now", "datetime.utcnow", "date.today"),
    *("uuid.uuid4", "uuid.uuid1", "uuid4", "uuid1"),
}
FORBIDDEN_MODULES = {"time", "random", "secrets", "os", "socket", "threading", "uuid", "logging"}
EXECUTES = {"execute_activity", "execute_local_activity", "start_activity", "start_local_activity"}
TIMEOUTS = {"start_to_close_timeout", "schedule_to_close_timeout"}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path.name)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def dotted(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def handlers(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for function in functions(tree):
        if any(dotted(one) == "workflow.signal" for one in function.decorator_list):
            yield function


def test_the_rules_are_applied_to_something() -> None:
    assert {path.name for path in DEFINING} >= {"placement.py", "scoring.py"}
    assert any(list(handlers(parsed(path))) for path in DEFINING)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_signal_handler_takes_one_parameter_that_may_be_left_out(path: Path) -> None:
    for handler in handlers(parsed(path)):
        arguments = handler.args
        assert len(arguments.args) == 2, f"{handler.name} takes {len(arguments.args) - 1} parameters"
        others = (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs)
        assert not any(others), f"{handler.name} takes more than one plain parameter"
        assert [ast.unparse(one) for one in arguments.defaults] == ["None"]
        assert not isinstance(handler, ast.AsyncFunctionDef), f"{handler.name} must only change state"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_that_differs_on_replay_is_called(path: Path) -> None:
    called = {dotted(call) for call in calls(parsed(path))}
    assert not called & FORBIDDEN_CALLS


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_module_of_clocks_chance_or_machines_is_imported(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert not imported & FORBIDDEN_MODULES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_hand_is_waited_for_within_terms(path: Path) -> None:
    """A timeout, a retry policy and a summary for each, and every duration from terms.py."""
    for call in calls(parsed(path)):
        if dotted(call).removeprefix("workflow.") not in EXECUTES:
            continue
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given.keys() & TIMEOUTS, f"line {call.lineno} waits without a timeout"
        assert {"retry_policy", "summary", "result_type"} <= given.keys(), f"line {call.lineno}"
        assert "heartbeat_timeout" in given or "local" in dotted(call), f"line {call.lineno}"
        for name, value in given.items():
            if name is not None and name.endswith(("timeout", "threshold", "retry_policy")):
                assert value.startswith("terms."), f"line {call.lineno}: {name}={value}"


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.name != "terms.py"], ids=lambda path: path.name
)
def test_durations_and_retries_are_written_in_terms_only(path: Path) -> None:
    made = {dotted(call) for call in calls(parsed(path))}
    assert not made & {"timedelta", "datetime.timedelta", "RetryPolicy", "asyncio.sleep"}
    numbers = [
        node.value
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in (0, 1)
    ]
    assert numbers == [], "a number that means something has a name and a reason in terms.py"


def test_every_term_has_its_reason() -> None:
    """A comment above each constant, or above the block that it opens."""
    lines = (FOLDER / "terms.py").read_text().splitlines()
    tree = parsed(FOLDER / "terms.py")
    for node in tree.body:
        if isinstance(node, ast.Assign) and "timedelta" in ast.unparse(node.value):
            block = lines[: node.lineno - 1][::-1]
            opened = next((line for line in block if not line or line.startswith("#")), "")
            assert opened.startswith("#"), f"{ast.unparse(node.targets[0])} has no reason"


@pytest.mark.parametrize("path", DEFINING, ids=lambda path: path.name)
def test_own_modules_pass_through_the_sandbox(path: Path) -> None:
    for node in parsed(path).body:
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in {"__future__", "temporalio", "typing", "enum"}

"""`sco slurm-nodes`: a whole new file, or the old one as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clients.cli.failures import Exit
from tests.cli.conftest import Sco
from tests.cli.fake_api import FakeApi, document, problem

KEY = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik="
WHERE, FILE = "/nodes/forwarder", "nodes.json"
COMMAND = ("slurm-nodes", "slurm-a", "--out", FILE)


def node(number: int, **changed: Any) -> dict[str, Any]:
    return {"instanceId": f"i-{number}", "node": f"n{number}", "publicKey": KEY} | changed


def answer(*nodes: dict[str, Any], left_out: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"partitionId": "slurm-a", "nodes": list(nodes), "leftOut": left_out or []}


def test_the_file_is_as_the_forwarder_reads_it(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.on("GET", WHERE, document(answer(node(1), node(2))))
    ran = sco(*COMMAND)
    assert (ran.code, ran.out) == (Exit.OK, "2 nodes of slurm-a in 'nodes.json'\n")
    assert api.asked("GET", WHERE)[0].query == {"partitionId": "slurm-a"}
    written = json.loads((tmp_path / FILE).read_text())
    assert written == {f"i-{one}": {"node": f"n{one}", "publicKey": KEY} for one in (1, 2)}
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644


def test_a_file_that_says_the_same_is_left_alone(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.on("GET", WHERE, document(answer(node(1))))
    sco(*COMMAND)
    before = (tmp_path / FILE).stat()
    assert "as before" in sco(*COMMAND).out
    assert (tmp_path / FILE).stat().st_ino == before.st_ino
    api.on("GET", WHERE, document(answer()))
    assert sco(*COMMAND).out == "0 nodes of slurm-a in 'nodes.json'\n"
    assert json.loads((tmp_path / FILE).read_text()) == {}


def test_who_is_left_out_is_told(sco: Sco, api: FakeApi) -> None:
    shared = {"instanceId": "i-7", "serverName": "n1", "reason": "shared_name"}
    unnamed = {"instanceId": "i-8", "serverName": None, "reason": "no_name_yet"}
    api.on("GET", WHERE, document(answer(left_out=[shared, unnamed])))
    ran = sco(*COMMAND)
    assert ran.code == Exit.OK
    assert "left out: i-7 (n1): another live server of the partition has its name" in ran.err
    assert "left out: i-8: the provider's name of it is not known yet" in ran.err
    api.on("GET", WHERE, document(answer(left_out=[shared] * 15)))
    assert "left out: 5 more" in sco(*COMMAND).err


@pytest.mark.parametrize(
    "wrong",
    [
        answer(node(1), node(2, node="n1")),
        answer(node(1), node(1, node="n2")),
        answer(node(1, node="n[1-3]")),
        answer(node(1, publicKey="short")),
        answer(node(1, instanceId="../x")),
        answer(node(1, node=None)),
        {"nodes": {}},
        {},
        [],
    ],
)
def test_an_answer_that_a_forwarder_would_refuse_changes_nothing(
    sco: Sco, api: FakeApi, tmp_path: Path, wrong: Any
) -> None:
    (tmp_path / FILE).write_text("old")
    api.on("GET", WHERE, document(wrong))
    assert sco(*COMMAND).code == Exit.UNREACHABLE
    assert [one.name for one in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_text() == "old"


@pytest.mark.parametrize(
    ("refusal", "code"), [((422, "no partition"), Exit.REFUSED), ((503, "away"), Exit.UNREACHABLE)]
)
def test_a_server_that_refuses_changes_nothing(
    sco: Sco, api: FakeApi, tmp_path: Path, refusal: tuple[int, str], code: Exit
) -> None:
    (tmp_path / FILE).write_text("old")
    api.on("GET", WHERE, problem(*refusal))
    assert sco(*COMMAND).code == code
    assert (tmp_path / FILE).read_text() == "old"


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_other(
    sco: Sco, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (tmp_path / FILE).write_text("old")
    api.on("GET", WHERE, document(answer(node(1))))

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, step, full)
    ran = sco(*COMMAND)
    assert ran.code == Exit.USAGE
    assert "cannot write 'nodes.json': No space left on device" in ran.err
    assert [one.name for one in tmp_path.iterdir()] == [FILE]
    assert (tmp_path / FILE).read_text() == "old"


def test_a_place_where_nothing_can_be_written_is_named(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.on("GET", WHERE, document(answer(node(1))))
    (tmp_path / "folder").mkdir()
    for place in ("nowhere/nodes.json", "folder", "a\0b"):
        ran = sco("slurm-nodes", "slurm-a", "--out", place)
        assert ran.code == Exit.USAGE, place
        assert "Traceback" not in ran.err
    assert not list((tmp_path / "folder").iterdir())


def test_a_link_stays_and_what_it_points_to_is_replaced(sco: Sco, api: FakeApi, tmp_path: Path) -> None:
    api.on("GET", WHERE, document(answer(node(1))))
    (tmp_path / "real").mkdir()
    (tmp_path / FILE).symlink_to(tmp_path / "real" / "list.json")
    assert sco(*COMMAND).code == Exit.OK
    assert (tmp_path / FILE).is_symlink()
    assert "i-1" in (tmp_path / "real" / "list.json").read_text()

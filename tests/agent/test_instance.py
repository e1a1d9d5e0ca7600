"""Which instance a node is, also where its disk was copied from another's."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from agent.instance import INSTANCE_FILE, OF_ONE, Instance
from agent.settings import AgentSettings
from tests.agent.rig import Node, letter, node, notice, until

OWN, ANOTHER = "from-metadata", "i-another"
UNSET = 'import os; os.environ.pop("SCO_AGENT_INSTANCE_ID")'
# However busy the machine is.
PATIENT = f"{UNSET}; import agent.instance; agent.instance.CONFIRM_SECONDS = 30"


def copied(folder: Path) -> Node:
    """A node that starts from the disk of another, of which there is also a drain."""
    one = Node(folder, OWN)
    one.state.mkdir()
    (one.state / INSTANCE_FILE).write_text(f"{ANOTHER}\n")
    for name in OF_ONE:
        (one.state / name).write_bytes(b"another's")
    return one


def test_a_node_from_anothers_disk_hears_its_own_notices(tmp_path: Path) -> None:
    with closing(copied(tmp_path)) as one:
        work = one.work("checkpoints")
        one.start(prelude=PATIENT)
        assert (one.state / INSTANCE_FILE).read_text() == f"{OWN}\n"
        one.metadata.letters = [letter(notice(OWN))]
        until(lambda: one.phase() == "finished")
        assert work.said("checkpoint")
        assert one.story() == ["notice", "signalled", "work_ended", "drained"]


def test_a_node_finds_out_when_the_provider_answers_at_last(tmp_path: Path) -> None:
    with closing(copied(tmp_path)) as one:
        one.metadata.mode = "fails"
        one.start(prelude=UNSET)
        assert (one.state / INSTANCE_FILE).read_text() == f"{ANOTHER}\n"
        one.metadata.mode = "answers"
        assert one.process is not None
        assert one.process.wait(30) == 3
        assert f"this is instance {OWN}, not {ANOTHER}" in one.log()
        one.start(prelude=UNSET)
        one.metadata.letters = [letter(notice(OWN))]
        until(lambda: one.phase() == "finished")


def test_a_drain_of_another_that_was_gone_on_with_ends_when_the_provider_answers(tmp_path: Path) -> None:
    with node(tmp_path / "another") as another:
        another.work("ignores")
        another.start()
        another.metadata.letters = [letter(notice(another.instance_id, 100))]
        until(lambda: another.phase() == "signalled")
        another.stop()
        kept = json.loads((another.state / "drain.json").read_text())
    (tmp_path / "own").mkdir()
    with closing(copied(tmp_path / "own")) as one:
        one.metadata.mode = "fails"
        (one.state / "drain.json").write_text(json.dumps(kept | {"boot_id": "another's"}))
        one.start(prelude=UNSET)
        until(one.phase)
        one.metadata.mode = "answers"
        assert one.process is not None
        assert one.process.wait(30) == 3
        one.start(prelude=UNSET)
        assert one.phase() is None
        assert not one.deadline_file.exists()
        one.metadata.letters = [letter(notice(OWN))]
        until(lambda: one.phase() == "finished")


def test_a_node_whose_provider_is_silent_is_who_it_was(tmp_path: Path) -> None:
    with node(tmp_path / "n") as one:
        one.metadata.mode = "hangs"
        one.state.mkdir()
        (one.state / INSTANCE_FILE).write_text(one.instance_id)
        one.start(prelude=UNSET)
        assert one.stop() == 0


async def test_one_wrong_answer_makes_no_other_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.instance.CONFIRM_SECONDS", 30)
    instance = Instance(AgentSettings(state_dir=tmp_path))
    (tmp_path / INSTANCE_FILE).write_text(ANOTHER)
    answers = [OWN, ANOTHER]

    async def answer() -> str:
        return answers.pop(0)

    instance._metadata.instance_id = answer  # type: ignore[method-assign]
    assert await instance.find() == ANOTHER
    assert answers == []

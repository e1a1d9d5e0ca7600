"""The worked examples do what their pages say, in processes that are taken off their node."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from clients.checkpoint import LocalStore
from tests.clients.checkpoint.stores import checkpoints

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples/checkpoint"
PATIENCE_SECONDS = 60
LEFT = 75


def command(example: str, *arguments: object) -> list[str]:
    return [sys.executable, str(EXAMPLES / example), *map(str, arguments)]


def finished(example: str, *arguments: object) -> str:
    ran = subprocess.run(
        command(example, *arguments),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_training_run_that_was_taken_off_its_node_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    undisturbed = finished("training.py", tmp_path / "a", "run", "--steps", 120)
    steps = ("--steps", 120, "--every", 1000)
    child = subprocess.Popen(
        command("training.py", tmp_path / "b", "run", *steps, "--pause", 0.02),
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    writer = checkpoints(LocalStore(tmp_path / "b"), workload="run")
    # It holds its lease once it runs; then it is told to go.
    while not LocalStore(tmp_path / "b").list("checkpoints/run/leases/"):
        assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    said, _ = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == LEFT
    assert "notice: hard" in said
    found = writer.latest()
    assert found is not None
    assert found.final
    resumed = finished("training.py", tmp_path / "b", "run", *steps)
    assert f"resumed at step {json.loads(found.read('weights.json'))[0]}\n" in resumed
    assert resumed.splitlines()[-1] == undisturbed.splitlines()[-1]
    assert undisturbed.startswith("done: ")


def test_a_batch_job_counts_no_record_twice(tmp_path: Path) -> None:
    words = [f"word-{n % 7}" for n in range(450)]
    records = tmp_path / "input.txt"
    records.write_text("\n".join(words) + "\n")
    counted = json.dumps(Counter(words), sort_keys=True)
    assert finished("batch.py", tmp_path / "store", "totals", records) == f"done: {counted}\n"
    assert finished("batch.py", tmp_path / "store", "totals", records) == f"done before: {counted}\n"
    # A run that ended after its second checkpoint: what is counted there is not counted again.
    found = checkpoints(LocalStore(tmp_path / "store"), workload="totals").latest()
    assert found is not None
    place, so_far = json.loads(found.read())
    assert sum(so_far.values()) == 400
    with checkpoints(LocalStore(tmp_path / "other"), workload="totals") as earlier:
        earlier.save(json.dumps([place, so_far]).encode())
    assert finished("batch.py", tmp_path / "other", "totals", records) == f"done: {counted}\n"


def test_the_spark_configuration_decommissions_within_the_budget() -> None:
    settings = {}
    for line in (EXAMPLES / "spark-decommission.conf").read_text().splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"(spark\.[A-Za-z.]+)\s+(\S+)", line)
            assert match, line
            assert match[1] not in settings
            settings[match[1]] = match[2]
    for name in ("decommission", "storage.decommission", "storage.decommission.shuffleBlocks"):
        assert settings[f"spark.{name}.enabled"] == "true"
    assert settings["spark.storage.decommission.fallbackStorage.path"].endswith("/")
    assert int(settings["spark.executor.decommission.forceKillTimeout"].removesuffix("s")) <= 115

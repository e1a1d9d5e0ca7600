"""The alert rules in Prometheus itself: it reads them, and they fire when they should and not before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


def promtool(*words: str) -> None:
    ran = subprocess.run(
        ["promtool", *words], check=False, cwd=FOLDER, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.rules.yml")), ids=lambda one: one.name)
def test_prometheus_reads_the_rules(file: Path) -> None:
    promtool("check", "rules", file.name)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.test.yml")), ids=lambda one: one.name)
def test_alerts_fire_when_they_should(file: Path) -> None:
    promtool("test", "rules", file.name)

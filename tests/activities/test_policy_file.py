"""The policy file: what it leaves out has its default, and what is wrong in it refuses the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from activities.policy_file import LOOK_EVERY_SECONDS, PolicyFile, PolicyRefused, read_policy
from domain.policy import Policy


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_every_figure_has_its_default() -> None:
    assert read_policy(None) == Policy()


@pytest.mark.parametrize("text", ["", "{}", "placement: {}"])
def test_an_empty_file_changes_nothing(tmp_path: Path, text: str) -> None:
    assert read_policy(written(tmp_path, text)) == Policy()


def test_a_figure_in_the_file_replaces_its_default_alone(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, "placement: {backoff_seconds: 600}"))

    assert policy.placement.backoff_seconds == 600
    assert policy.placement.model_copy(update={"backoff_seconds": 300}) == Policy().placement
    assert policy.scoring == Policy().scoring


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("placement: {backoff_seconds: 0}", ["placement.backoff_seconds", "greater than or equal to 1", "0"]),
        ("placement: {backof_seconds: 9}", ["placement.backof_seconds", "not permitted"]),
        ("scoring: {discount_limit: 1.2}", ["scoring.discount_limit", "1.2"]),
        ("[1, 2]", ["the whole file"]),
        ("a: [", ["is not YAML"]),
        ("acquisition: {max_attempts: many}", ["acquisition.max_attempts", "many"]),
    ],
)
def test_a_wrong_figure_is_named_with_its_value(tmp_path: Path, text: str, said: list[str]) -> None:
    with pytest.raises(PolicyRefused) as refusal:
        read_policy(written(tmp_path, text))

    assert all(part in str(refusal.value) for part in said)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused, match=r"nowhere\.yaml cannot be read"):
        read_policy(tmp_path / "nowhere.yaml")


class Kept:
    """A policy file in force, on a clock that a test moves."""

    def __init__(self, path: Path | None) -> None:
        self.registry = CollectorRegistry()
        self.at = 0.0
        self.policy = PolicyFile(path, self.registry, monotonic=lambda: self.at)

    def later(self) -> Policy:
        self.at += LOOK_EVERY_SECONDS
        return self.policy()

    @property
    def refused(self) -> float | None:
        return self.registry.get_sample_value("sco_policy_refused")


def test_a_changed_file_is_in_force_within_a_second(tmp_path: Path) -> None:
    path = written(tmp_path, "placement: {backoff_seconds: 600}")
    kept = Kept(path)
    written(tmp_path, "placement: {backoff_seconds: 70}")
    assert kept.policy().placement.backoff_seconds == 600
    assert kept.later().placement.backoff_seconds == 70
    assert kept.refused == 0


@pytest.mark.parametrize("text", ["placement: {backoff_seconds: 0}", "{", None])
def test_a_refused_file_leaves_the_policy_in_force(tmp_path: Path, text: str | None) -> None:
    path = written(tmp_path, "placement: {backoff_seconds: 600}")
    kept = Kept(path)
    if text is None:
        path.unlink()
    else:
        written(tmp_path, text)
    assert kept.later().placement.backoff_seconds == 600
    assert kept.refused == 1
    written(tmp_path, "placement: {backoff_seconds: 80}")
    assert kept.later().placement.backoff_seconds == 80
    assert kept.refused == 0


def test_without_a_file_the_defaults_are_in_force() -> None:
    assert Kept(None).later() == Policy()


def test_a_first_reading_that_fails_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused):
        Kept(tmp_path / "nowhere.yaml")

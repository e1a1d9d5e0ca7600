"""Server tags: what a provider accepts, and different for different workloads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domain.tags import MAX_TAG_LENGTH, partition_tag, purchase_model_tag, workload_tag

ids = st.from_regex(r"\A[a-z0-9][a-z0-9-]{0,62}\Z")


def test_short_ids_are_readable() -> None:
    assert workload_tag("render") == "sco:workload=render"
    assert partition_tag("k8s-eu-north") == "sco:partition=k8s-eu-north"
    assert purchase_model_tag("reclaimable") == "sco:purchase-model=reclaimable"


def test_the_longest_id_that_fits_is_kept_whole() -> None:
    fits = "w" * (MAX_TAG_LENGTH - len("sco:workload="))
    assert workload_tag(fits) == f"sco:workload={fits}"
    assert workload_tag(fits + "w") != f"sco:workload={fits}w"


@given(ids)
def test_a_tag_is_accepted_by_the_provider(workload_id: str) -> None:
    tag = workload_tag(workload_id)
    assert len(tag) <= MAX_TAG_LENGTH
    assert "/" not in tag
    assert "," not in tag


@given(st.text("ab", min_size=50, max_size=63), st.text("ab", min_size=50, max_size=63))
def test_long_ids_with_one_start_have_different_tags(one: str, other: str) -> None:
    assert (workload_tag("w" * 40 + one) == workload_tag("w" * 40 + other)) == (one == other)


def test_an_id_cannot_be_chosen_to_equal_the_tag_of_a_longer_one() -> None:
    long = workload_tag("w" * 63).removeprefix("sco:workload=")
    assert "~" in long

"""The reference page says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from domain.claim import MAX_GPUS, MAX_RAM_MIB, MAX_SHAPES, MAX_UNITS, MAX_VCPU_MILLI, LeftOutReason
from domain.intake import own
from tests.intake.support import read_ok
from wire.intake import MAX_BYTES, MAX_DEPTH, MAX_YAML_BYTES, parse_documents

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "claim-input.md").read_text()


def test_every_reason_is_explained_and_no_other() -> None:
    table = PAGE.split("## Reasons for leaving out")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {
        reason.value for reason in LeftOutReason
    }


def test_the_limits_are_those_of_the_code() -> None:
    assert f"At most {MAX_BYTES >> 20} MiB, of which YAML at most {MAX_YAML_BYTES >> 20} MiB" in PAGE
    assert f"at most {MAX_DEPTH} levels" in PAGE
    assert f"at most {MAX_UNITS:,} units" in PAGE
    assert f"{MAX_VCPU_MILLI // 1000:,} vCPU, {MAX_RAM_MIB:,} MiB and {MAX_GPUS} GPUs" in PAGE
    assert f"A claim has at most {MAX_SHAPES}." in PAGE


def test_the_example_is_valid_and_the_same_as_in_the_code() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert read_ok(parse_documents(example.encode())).workloads["orders-daily"].units == 42
    assert own.__doc__ is not None
    assert all(line.strip() in own.__doc__ for line in example.splitlines())

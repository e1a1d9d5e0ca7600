"""The page of the spool gives up events in the order of the code."""

from __future__ import annotations

import re

from agent.spool import LIMIT_BYTES, MEMORY_EVENTS
from agent.spool_policy import WORTH
from agent.uplink import Pace
from tests.docs.pages import read, section

PAGE = "docs/concepts/spool.md"


def test_the_order_on_the_page_is_that_of_the_code() -> None:
    table = re.findall(r"^\| \w+ \| (.*) \|$", section(PAGE, "When it is full"), re.MULTILINE)
    named = [set(re.findall(r"`(\w+)`", line)) for line in table if "`" in line]
    ranks = sorted(set(WORTH.values()))
    assert named == [{str(kind) for kind, worth in WORTH.items() if worth == rank} for rank in ranks]


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    text = " ".join(read(PAGE).split())
    first, longest = Pace().resend
    assert f"intervals of {first:.0f} s, doubling to {longest / 60:.0f} minutes" in text
    assert f"at most {LIMIT_BYTES // 2**20} MiB" in text
    assert f"up to {MEMORY_EVENTS:,} events" in text

"""The pages on the node file say what the code reads: every field, its default, a policy that is enough."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from activities.node_settings import NodeSettings, TransitSettings
from lab.secrets import BUNDLE_KEY, POLICIES, SIGNER
from tests.docs.pages import fences, read, rows

SETTINGS = "docs/reference/settings.md"


def default_of(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    return f"`{value}`" if value else "none"


@pytest.mark.parametrize(
    ("heading", "model"), [("Node file", NodeSettings), ("Bundle keys in OpenBao", TransitSettings)]
)
def test_every_field_is_documented_with_its_default(heading: str, model: type[BaseModel]) -> None:
    expected = {name: default_of(info) for name, info in model.model_fields.items()}
    assert {name: cells[0] for name, cells in rows(SETTINGS, heading).items()} == expected


def test_the_policy_that_the_page_shows_is_the_one_that_was_tried() -> None:
    shown = "".join(fences(read("docs/howto/sign-bundles-with-openbao.md"), "sh"))
    policy = re.findall(r"^path .*$", shown.replace("sco-bundles", BUNDLE_KEY), re.MULTILINE)
    assert policy == POLICIES[SIGNER].splitlines()

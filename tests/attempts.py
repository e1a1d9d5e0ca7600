"""Names for what a test makes on servers that other tests use too."""

from __future__ import annotations

import pytest


def own_name(request: pytest.FixtureRequest) -> str:
    """The name of the running test; a second attempt gets another, since the first may have left things."""
    attempt: int = getattr(request.node, "execution_count", 1)
    name = str(request.node.name).replace("[", ".").replace("]", "").replace(" ", "-")
    return name if attempt == 1 else f"{name}.again"

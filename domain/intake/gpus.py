"""GPU types: from what schedulers call a card to the name that pools are registered with."""

from __future__ import annotations

import re
from typing import NamedTuple

from domain.claim import LeftOutReason
from domain.intake.words import Skip, clean, shown

# fmt: off
_MODELS = frozenset((
    "a2", "a10", "a16", "a30", "a40", "a100", "a800", "b100", "b200", "b300", "gb200", "gh200",
    "h20", "h100", "h200", "h800", "l4", "l20", "l40", "l40s", "p4", "p40", "p100", "t4", "v100",
))
# fmt: on
_MAKERS = ("nvidia", "tesla")
_SHARED = re.compile(r"(^|[-_ ])(shared|mig|\d+g\.\d+gb)($|[-_ ])", re.IGNORECASE)
_MAX_NAME = 63


class GpuType(NamedTuple):
    """The type, and a remark when the match to a registered type is not certain."""

    name: str
    remark: str = ""


def gpu_type(product: str) -> GpuType:
    """`NVIDIA-A100-SXM4-80GB`, `nvidia_l4` or `a100` → `a100`, `l4`, `a100`.

    A product that names no known model becomes a type of its own name: only pools registered with that
    very name can serve it, so the requirement is kept rather than dropped. A share of a card raises
    `Skip`.
    """
    if _SHARED.search(product):
        raise Skip(
            LeftOutReason.UNSUPPORTED_RESOURCE,
            f"it asks for a share of a GPU ({shown(product)}); only whole GPUs are placed",
        )
    words = [word for word in re.split(r"[^a-z0-9]+", product.lower()) if word]
    models = [word for word in words if word in _MODELS]
    if len(models) == 1:
        certain = [word for word in words if word not in _MAKERS] == models
        remark = "" if certain else f"GPU {clean(product)} is read as type {models[0]}, whatever its memory"
        return GpuType(models[0], remark)
    name = "-".join(words)[:_MAX_NAME] or "unknown"
    return GpuType(name, f"GPU {shown(product)} is no known model: only pools with GPU type {name} serve it")

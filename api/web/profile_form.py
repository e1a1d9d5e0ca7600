"""The form of a warm profile: what it shows, what it sends, and which field a refusal belongs to.

Rows of models and windows are numbered. A row that is empty is left out, so that rows stay numbered as the
profile has them, and a refusal of the third model stands at the third row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from api.problems import FieldProblem
from api.warm_profiles import ProfileView, WindowView
from api.web.posted import Posted, whole, wrong_value
from api.web.render import clock
from domain.serving.warm_keep import MAX_ENTRIES

SPARE_MODELS = 3
SPARE_WINDOWS = 1
# What is chosen among the words and names that there are.
CHOICES = ("regions", "kinds", "gpuTypes", "boundaries")
FIELDS = frozenset({"profileId", "poolIds", "copies", "enabled", "model-0", "start-0", *CHOICES})
# Where a refusal of a whole row, or of a whole list, is told.
FIRST_FIELD = {"models": "model", "windows": "start"}
FIRST_ROW = {"models": "model-0", "windows": "start-0"}
_ROW = re.compile(r"(?P<list>models|windows)\.(?P<number>\d+)(?:\.(?P<name>\w+))?")
_BETWEEN = re.compile(r"[\s,]+")


class ModelRow(NamedTuple):
    """One model and its memory in GB, as they were typed."""

    model: str = ""
    vram_gb: str = ""


class WindowRow(NamedTuple):
    """One window, as it was chosen: days of the week, and times such as `22:00`."""

    days: tuple[str, ...] = ()
    start: str = ""
    until: str = ""


@dataclass(frozen=True)
class ProfileForm:
    """What the form holds. All of it is text that a person may have typed, right or wrong."""

    profile_id: str = ""
    version: str = ""
    models: tuple[ModelRow, ...] = ()
    pool_ids: str = ""
    chosen: Mapping[str, frozenset[str]] = field(default_factory=dict)
    copies: str = "1"
    windows: tuple[WindowRow, ...] = ()
    enabled: bool = True

    @classmethod
    def sent(cls, sent: Posted) -> Self:
        """What a person sent."""
        return cls(
            profile_id=sent.one("profileId"),
            version=sent.one("version"),
            models=tuple(_models(sent)),
            pool_ids=sent.one("poolIds"),
            chosen={name: frozenset(sent.all(name)) for name in CHOICES},
            copies=sent.one("copies"),
            windows=tuple(_windows(sent)),
            enabled=sent.has("enabled"),
        )

    @classmethod
    def of(cls, profile: ProfileView) -> Self:
        """A profile as the API tells it."""
        selector = profile.pools
        return cls(
            profile_id=profile.profile_id,
            version=str(profile.version),
            models=tuple(ModelRow(one.model, str(one.vram_gb)) for one in profile.models),
            pool_ids=", ".join(selector.pool_ids),
            chosen={
                "regions": frozenset(selector.regions),
                "kinds": frozenset(selector.kinds),
                "gpuTypes": frozenset(selector.gpu_types),
                "boundaries": frozenset(selector.boundaries),
            },
            copies=str(profile.copies),
            windows=tuple(_window_row(one) for one in profile.windows),
            enabled=profile.enabled,
        )

    def body(self) -> dict[str, Any]:
        """The document that the API would be sent."""
        return {
            "profileId": self.profile_id,
            "models": [_without_empty(model=one.model, vramGb=whole(one.vram_gb)) for one in self.models],
            "pools": {
                "poolIds": [one for one in _BETWEEN.split(self.pool_ids) if one],
                **{name: sorted(chosen) for name, chosen in self.chosen.items()},
            },
            "copies": whole(self.copies),
            "windows": [
                {"days": list(one.days)} | _without_empty(start=one.start, until=one.until)
                for one in self.windows
            ],
            "enabled": self.enabled,
        }

    def with_spare_rows(self) -> Self:
        """The same with empty rows to fill in, as far as a profile may have more."""
        return replace(
            self,
            models=(*self.models, *_spare(ModelRow(), SPARE_MODELS, self.models)),
            windows=(*self.windows, *_spare(WindowRow(), SPARE_WINDOWS, self.windows)),
        )


def wrong_fields(errors: Iterable[FieldProblem]) -> dict[str, str]:
    """What is wrong with each field, by the name that it has in the form; under "" what is of no field."""
    wrong: dict[str, str] = {}
    for error in errors:
        name = _form_name(error.field)
        told = wrong_value(error)
        wrong[name] = f"{wrong[name]}; {told}" if name in wrong else told
    return wrong


def _form_name(path: str) -> str:
    """The field of the form for a path of the API, such as `models.2.vramGb`."""
    row = _ROW.match(path)
    if row is not None:
        return f"{row['name'] or FIRST_FIELD[row['list']]}-{row['number']}"
    head, _, rest = path.partition(".")
    name = rest.partition(".")[0] if head == "pools" else FIRST_ROW.get(head, head)
    return name if name in FIELDS else ""


def _models(sent: Posted) -> Iterable[ModelRow]:
    for number in range(MAX_ENTRIES + SPARE_MODELS):
        row = ModelRow(sent.one(f"model-{number}"), sent.one(f"vramGb-{number}"))
        if any(row):
            yield row


def _windows(sent: Posted) -> Iterable[WindowRow]:
    for number in range(MAX_ENTRIES + SPARE_WINDOWS):
        days = tuple(sent.all(f"days-{number}"))
        row = WindowRow(days, sent.one(f"start-{number}"), sent.one(f"until-{number}"))
        if any(row):
            yield row


def _window_row(window: WindowView) -> WindowRow:
    return WindowRow(tuple(window.days), clock(window.start), clock(window.until))


def _spare(empty: Any, most: int, there: Sequence[Any]) -> list[Any]:
    return [empty] * max(0, min(most, MAX_ENTRIES - len(there)))


def _without_empty(**given: int | str) -> dict[str, int | str]:
    """What was left empty was not said: it is told as missing, or has its default."""
    return {name: value for name, value in given.items() if value != ""}

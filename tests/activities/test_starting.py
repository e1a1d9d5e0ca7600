"""What a process says before it serves. That all three do is seen with the processes themselves."""

from __future__ import annotations

import pytest
from pydantic_settings import BaseSettings

from activities.starting import NEEDED, REFUSED_BY, refusals_told
from api.grpc.settings import GrpcSettings
from api.settings import ApiSettings
from workers.settings import WorkerSettings


@pytest.mark.parametrize("settings", [ApiSettings, GrpcSettings, WorkerSettings])
def test_whatever_is_needed_has_words_for_when_it_is_missing(settings: type[BaseSettings]) -> None:
    assert {name for name, field in settings.model_fields.items() if field.is_required()} <= NEEDED.keys()


@pytest.mark.parametrize("kind", [*REFUSED_BY, KeyError])
def test_every_refusal_names_its_setting_and_ends_with_2(
    capsys: pytest.CaptureFixture[str], kind: type[Exception]
) -> None:
    with pytest.raises(SystemExit) as ended, refusals_told("sco-x", {KeyError: "SCO_OWN"}):
        raise kind("why")
    setting = REFUSED_BY.get(kind, "SCO_OWN")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"sco-x: {setting}: ")


def test_what_no_setting_is_to_blame_for_is_not_told_as_one() -> None:
    with pytest.raises(ValueError, match="a defect"), refusals_told("sco-x"):
        raise ValueError("a defect")

"""The form of a warm profile: rows keep their numbers, and a refusal finds its field."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from api.problems import FieldProblem
from api.warm_profiles import ModelView, ProfileBody, ProfileView, SelectorView, WindowView, profile_of
from api.web.posted import Posted
from api.web.profile_form import ModelRow, ProfileForm, WindowRow, wrong_fields
from domain.pool import PoolKind, SecurityBoundary
from domain.serving.warm_keep import MAX_ENTRIES, Weekday

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
PROFILE = ProfileView(
    profile_id="evening",
    models=(ModelView(model="llama3.3:70b", vram_gb=42), ModelView(model="qwen3:8b", vram_gb=6)),
    pools=SelectorView(
        pool_ids=("gpu-1", "gpu-2"),
        regions=("eu-north",),
        kinds=(PoolKind.DGX_CLASS,),
        gpu_types=("a100", "l4"),
        boundaries=(SecurityBoundary.PRIVATE,),
    ),
    copies=2,
    windows=(
        WindowView(days=(Weekday.MONDAY, Weekday.FRIDAY), start="22:00:00", until="06:00:00"),
        WindowView(days=(), start="12:30:15", until="13:00:00"),
    ),
    enabled=False,
    in_force=False,
    version=3,
    created_at=NOON,
    updated_at=NOON,
)


def as_sent(form: ProfileForm) -> Posted:
    """What a browser sends of a form that nobody touched."""
    fields = [
        ("profileId", form.profile_id),
        ("version", form.version),
        ("poolIds", form.pool_ids),
        ("copies", form.copies),
    ]
    for number, model in enumerate(form.models):
        fields += [(f"model-{number}", model.model), (f"vramGb-{number}", model.vram_gb)]
    for number, window in enumerate(form.windows):
        fields += [(f"days-{number}", day) for day in window.days]
        fields += [(f"start-{number}", window.start), (f"until-{number}", window.until)]
    fields += [(name, value) for name, chosen in form.chosen.items() for value in sorted(chosen)]
    return Posted(fields + ([("enabled", "yes")] if form.enabled else []))


@pytest.mark.parametrize("profile", [PROFILE, PROFILE.model_copy(update={"enabled": True, "windows": ()})])
def test_a_profile_comes_back_from_its_form_as_it_was(profile: ProfileView) -> None:
    form = ProfileForm.of(profile)
    again = ProfileForm.sent(as_sent(form.with_spare_rows()))
    assert again.version == "3"
    body = ProfileBody.model_validate(again.body())
    assert profile_of("evening", body) == profile_of(
        "evening",
        ProfileBody.model_validate_json(
            profile.model_dump_json(
                by_alias=True, include={"profile_id", "models", "pools", "copies", "windows", "enabled"}
            )
        ),
    )


def test_rows_without_anything_in_them_are_left_out_and_half_filled_ones_are_not() -> None:
    sent = Posted(
        [("model-0", " "), ("vramGb-0", ""), ("model-1", "qwen3:8b"), ("vramGb-1", ""), ("start-0", "22:00")]
    )
    form = ProfileForm.sent(sent)
    assert form.models == (ModelRow("qwen3:8b", ""),)
    assert form.windows == (WindowRow((), "22:00", ""),)
    body = form.body()
    assert body["models"] == [{"model": "qwen3:8b"}]
    assert body["windows"] == [{"days": [], "start": "22:00"}]


def test_there_are_rows_to_fill_in_as_far_as_a_profile_may_have_more() -> None:
    empty = ProfileForm().with_spare_rows()
    assert (len(empty.models), len(empty.windows)) == (3, 1)
    full = ProfileForm(models=(ModelRow("a", "1"),) * MAX_ENTRIES, windows=(WindowRow((), "1", "2"),) * 64)
    assert full.with_spare_rows() == full


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("models.2.vramGb", "vramGb-2"),
        ("models.0.model", "model-0"),
        ("models.1", "model-1"),
        ("models", "model-0"),
        ("windows.0.start", "start-0"),
        ("windows.1.days.0", "days-1"),
        ("windows.1", "start-1"),
        ("pools.poolIds.3", "poolIds"),
        ("pools.gpuTypes", "gpuTypes"),
        ("copies", "copies"),
        ("profileId", "profileId"),
        ("body", ""),
        ("pools.nothing", ""),
    ],
)
def test_a_refusal_is_told_at_its_field(path: str, name: str) -> None:
    refused = FieldProblem(field=path, where="body", value="x", allowed="something else", message="no")
    assert wrong_fields([refused]) == {name: "x is refused: allowed is something else"}


def test_two_refusals_of_one_field_are_both_told() -> None:
    missing = FieldProblem(field="pools.poolIds.0", where="body", value=None, allowed="a value", message="")
    assert wrong_fields([missing, missing]) == {"poolIds": "a value is needed; a value is needed"}

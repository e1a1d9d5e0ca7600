"""Warm profiles on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from clients.cli.screen import Screen, figures, names, spare
from clients.cli.warm_answers import WarmProfile, WarmWindow

SECONDS = ":00"
SHORT_DAY = 3


def profiles(screen: Screen, listed: Sequence[WarmProfile]) -> None:
    """One row for each profile, with what it keeps and when."""
    if not listed:
        screen.note("no warm profile yet: sco apply -f FILE")
        return
    columns = (
        *names("PROFILE", "IN FORCE"),
        *figures("COPIES", "GB"),
        *names("MODELS"),
        *spare(*names("WINDOWS (UTC)")),
    )
    screen.table(columns, [_row(one) for one in listed])


def _row(one: WarmProfile) -> tuple[str, ...]:
    return (
        one.profile_id,
        "yes" if one.in_force else "no" if one.enabled else "off",
        f"{one.copies:,}",
        f"{sum(model.vram_gb for model in one.models):,}",
        ", ".join(model.model for model in one.models),
        "; ".join(_window(window) for window in one.windows) or "always",
    )


def _window(one: WarmWindow) -> str:
    """Such as `mon,fri 08:00-18:00`."""
    span = f"{one.start.removesuffix(SECONDS)}-{one.until.removesuffix(SECONDS)}"
    days = ",".join(day[:SHORT_DAY] for day in one.days)
    return f"{days} {span}" if days else span

"""Numbers, money and times in words."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from clients.cli.answers import Money, Totals
from clients.cli.pool_answers import Pool


def number(value: Decimal | int, places: int | None = None) -> str:
    """1234.50 is `1,234.5`; rounded where `places` are given."""
    text = f"{value:,f}" if places is None else f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: Decimal) -> str:
    return f"{number(share * 100, 1)} %"


def rate(per_hour: Decimal) -> str:
    """Interruptions per hour are estimates: four places say all there is to say."""
    return number(per_hour, 4)


def money(value: Money) -> str:
    """To the cent at least, and as exact as it came: `1.25 USD`, `0.0735 USD`."""
    amount = f"{value.amount:,f}"
    whole, _, fraction = amount.partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')} {value.currency}"


def totals(claim: Totals) -> str:
    """`42 units, 168 vCPU, 672 GiB, 0 GPUs`."""
    return (
        f"{count(claim.units, 'unit')}, {number(claim.vcpu)} vCPU,"
        f" {number(claim.memory_gib)} GiB, {count(claim.gpus, 'GPU')}"
    )


def gpu(pool: Pool) -> str:
    """`2xa100`."""
    return f"{pool.gpu_count}x{pool.gpu_type}" if pool.gpu_count else "-"


def count(value: int, one: str, many: str | None = None) -> str:
    """`1 unit`, `42 units`."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def moment(at: datetime | None) -> str:
    """To the second, in UTC."""
    if at is None:
        return "never"
    try:
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return at.isoformat()


def duration(seconds: float) -> str:
    """`0:07`, `12:30`, `26:03:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

"""The yardstick: an otherwise empty workflow with two local activities, one Postgres commit in each."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from temporalio import activity, workflow

from domain.model import Frozen
from store.engine import Engine

QUEUE = "bench-yardstick"
TABLE = "bench_yardstick"


class Mark(Frozen):
    name: str


@workflow.defn(name="Yardstick")
class Yardstick:
    """Two marks, nothing else."""

    @workflow.run
    async def run(self, mark: Mark) -> None:
        for step in ("first_mark", "second_mark"):
            await workflow.execute_local_activity(step, mark, start_to_close_timeout=timedelta(seconds=10))


class YardstickActivities:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def prepare(self) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(
                sa.text(f"CREATE TABLE IF NOT EXISTS {TABLE} (name text, step int, PRIMARY KEY (name, step))")
            )

    @activity.defn(name="first_mark")
    async def first(self, mark: Mark) -> None:
        await self._write(mark.name, 1)

    @activity.defn(name="second_mark")
    async def second(self, mark: Mark) -> None:
        await self._write(mark.name, 2)

    async def _write(self, name: str, step: int) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(
                sa.text(f"INSERT INTO {TABLE} VALUES (:name, :step) ON CONFLICT DO NOTHING"),  # noqa: S608
                {"name": name, "step": step},
            )

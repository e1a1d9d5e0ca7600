"""Bring a database to the newest schema: `python -m store.migrate` or `upgrade(dsn)`. Forward only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config

from store.engine import async_url

HERE = Path(__file__).parent


def config(dsn: str) -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(HERE / "migrations"))
    settings.attributes["url"] = async_url(dsn)
    return settings


def upgrade(dsn: str, revision: str = "head") -> None:
    """Apply every migration up to `revision`. Safe to run twice and from several processes at once."""
    command.upgrade(config(dsn), revision)


def main() -> int:
    dsn = os.environ.get("SCO_DATABASE_URL")
    if not dsn:
        print("store.migrate: set SCO_DATABASE_URL to a postgresql:// address", file=sys.stderr)
        return 2
    upgrade(dsn)
    return 0


if __name__ == "__main__":
    sys.exit(main())

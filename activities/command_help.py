"""What a process of ours says to `--help`. It takes no arguments: its settings come from the environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pydantic_settings import BaseSettings


def answer_help(
    program: str, purpose: str, settings: type[BaseSettings], arguments: Sequence[str] | None = None
) -> None:
    """Print what the process is for and which variables it reads, and end; or refuse what else was given.

    Returns where nothing was given. Ends with 0 after help and with 2 after a refusal.
    """
    prefix = settings.model_config.get("env_prefix", "")
    fields = settings.model_fields.items()
    needed = [f"{prefix}{name}".upper() for name, field in fields if field.is_required()]
    others = [f"{prefix}{name}".upper() for name, field in fields if not field.is_required()]
    parser = argparse.ArgumentParser(
        prog=program,
        description=f"{purpose} It takes no arguments: settings are environment variables.",
        epilog=f"Needed: {', '.join(needed)}. Known besides: {', '.join(others)}."
        " docs/reference/settings.md says what each does.",
    )
    parser.parse_args(arguments)

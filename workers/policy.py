"""The policy file: the figures of the rules, changed without a release."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from domain.policy import Policy


class PolicyRefused(ValueError):
    """A policy file that cannot be used: what is wrong, where, and what is allowed."""


def read_policy(path: Path | None) -> Policy:
    """The policy in a YAML or JSON file; what it leaves out has its default. Without a file, all defaults."""
    if path is None:
        return Policy()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyRefused(f"the policy file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise PolicyRefused(f"the policy file {path} is not YAML: {error}") from error
    try:
        return Policy.model_validate(content or {})
    except ValidationError as error:
        raise PolicyRefused(f"the policy file {path} is refused:\n{_problems(error)}") from error


def _problems(error: ValidationError) -> str:
    lines = []
    for one in error.errors(include_url=False):
        place = ".".join(str(part) for part in one["loc"]) or "the whole file"
        lines.append(f"  {place}: {one['msg']}, not {one['input']!r}")
    return "\n".join(lines)

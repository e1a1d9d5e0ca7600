"""The policy file: the figures of the rules, changed without a release, and here without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog
import yaml
from prometheus_client import CollectorRegistry, Gauge
from pydantic import ValidationError

from domain.policy import Policy

LOOK_EVERY_SECONDS = 1.0
log = structlog.get_logger("policy")


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


class PolicyFile:
    """The policy in force: a file that is looked at once a second, and read again when it has changed.

    A file that is refused, or gone, leaves the policy in force as it is: a log line says what is wrong, and
    `sco_policy_refused` is 1 until it is put right. Raises `PolicyRefused` where the first reading fails.
    """

    def __init__(
        self,
        path: Path | None,
        registry: CollectorRegistry,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._monotonic = monotonic
        self._refused = Gauge(
            "sco_policy_refused",
            "1 while the policy file is refused and an older one is in force",
            registry=registry,
        )
        self._seen = self._version()
        self._policy = read_policy(path)
        self._looked_at = monotonic()

    def __call__(self) -> Policy:
        now = self._monotonic()
        if self._path is not None and now - self._looked_at >= LOOK_EVERY_SECONDS:
            self._looked_at = now
            self._look(self._path)
        return self._policy

    def _look(self, path: Path) -> None:
        version = self._version()
        if version == self._seen:
            return
        self._seen = version
        try:
            self._policy = read_policy(path)
        except PolicyRefused as error:
            self._refused.set(1)
            log.error("policy_refused", problem=str(error))
            return
        self._refused.set(0)
        log.info("policy_in_force", file=str(path))

    def _version(self) -> tuple[int, int, int] | None:
        """What changes with every writing of the file; None where there is none to look at."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _problems(error: ValidationError) -> str:
    lines = []
    for one in error.errors(include_url=False):
        place = ".".join(str(part) for part in one["loc"]) or "the whole file"
        lines.append(f"  {place}: {one['msg']}, not {one['input']!r}")
    return "\n".join(lines)

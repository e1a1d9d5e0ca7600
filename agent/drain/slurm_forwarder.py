"""Asks the forwarder beside slurmctld, in signed requests, for what this node may have done for itself."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.channel import Channel
from agent.drain.ports import SchedulerUnreachable
from wire.node_requests import TIME_HEADER, Asked, sign_request

CALL_SECONDS = 0.9
MAX_ANSWER = 256 * 1024
MAX_DETAIL = 200
STALE = "stale"
HIGHEST_CODE, HIGHEST_SIGNAL = 255, 64


class ForwarderAccess(NamedTuple):
    """Where the forwarder is, and whom to believe when it is asked by TLS (None: the machine's own list)."""

    url: str
    ca_file: Path | None = None


class JobStates(NamedTuple):
    """What became of each job that was asked for: a word, or `failed: …`."""

    jobs: Mapping[str, str]

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(sorted(job for job, state in self.jobs.items() if state.startswith("failed")))


class JobEnd(NamedTuple):
    """How a job ended: exit code, or below 0 the signal."""

    job_id: str
    exit_code: int
    ended_at: datetime | None


class SlurmForwarder:
    """The orders that a node may give. Raises SchedulerUnreachable for whatever was not carried out."""

    def __init__(
        self,
        access: ForwarderAccess,
        key: Ed25519PrivateKey,
        instance_id: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._channel = Channel(access.url, access.ca_file, most_bytes=MAX_ANSWER)
        self._key = key
        self._instance = instance_id
        self._now = now
        self._seconds = call_seconds
        self._ahead = timedelta(0)

    async def drain(self, owner: str, until: datetime) -> None:
        await self._order("drain", {"owner": owner, "until": until.astimezone(UTC).isoformat()})

    async def resume(self, owner: str) -> None:
        """Open the node again, if this owner closed it; otherwise nothing happens."""
        await self._order("resume", {"owner": owner})

    async def jobs(self) -> dict[str, str]:
        """The jobs that hold this node, by id, with Slurm's word for their state."""
        answer = await self._order("jobs", {})
        try:
            return {str(job["id"]): str(job["state"]) for job in answer["jobs"]}
        except (KeyError, TypeError) as error:
            raise SchedulerUnreachable("the forwarder answered without a list of jobs") from error

    async def endings(self, job_ids: Sequence[str] = ()) -> tuple[JobEnd, ...]:
        """How these jobs of this node ended, or all that Slurm still knows of; others are left out."""
        answer = await self._order("endings", {"jobs": sorted(job_ids)} if job_ids else {})
        try:
            found = [_end_of(job) for job in answer["jobs"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchedulerUnreachable("the forwarder answered without a list of endings") from error
        return tuple(one for one in found if one is not None)

    async def signal(self, name: str) -> JobStates:
        """Signal every job on this node."""
        return _states(await self._order("signal", {"signal": name}))

    async def requeue(self, job_ids: Sequence[str], *, signalled: bool = False) -> JobStates:
        """Let jobs begin again elsewhere, at once. Those that have completed are left as they are.

        With `signalled`, jobs that were signalled here are among them, whoever remembers which.
        """
        return _states(await self._order("requeue", {"jobs": sorted(job_ids), "signalled": signalled}))

    async def close(self) -> None:
        """Let go of connections; a later order makes new ones."""
        self._channel.close()

    async def _order(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._seconds):
                status, answer = await self._ask(name, body)
                if status == HTTPStatus.UNAUTHORIZED and answer.get("reason") == STALE:
                    # The forwarder's time came with its refusal: this node's clock is not to be trusted.
                    status, answer = await self._ask(name, body)
        except (OSError, ValueError) as error:
            text = str(error) or "no answer in time"
            raise SchedulerUnreachable(f"forwarder: {type(error).__name__}: {text}"[:MAX_DETAIL]) from error
        if status != HTTPStatus.OK:
            detail = f"forwarder: {status} {answer.get('reason')}: {answer.get('detail')}"
            raise SchedulerUnreachable(detail[:MAX_DETAIL])
        return answer

    async def _ask(self, name: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        asked = Asked("POST", f"/v1/{name}", json.dumps(body).encode())
        headers = sign_request(
            asked,
            key=self._key,
            instance_id=self._instance,
            at=self._now() + self._ahead,
            nonce=secrets.token_urlsafe(24),
        )
        found = await self._channel.ask(asked.method, asked.target, headers, asked.body)
        self._follow_clock(found.headers.get(TIME_HEADER.lower()))
        answer = json.loads(found.body)
        if not isinstance(answer, dict):
            raise ValueError("an answer that is no object")
        return found.status, answer

    def _follow_clock(self, said: str | None) -> None:
        try:
            theirs = datetime.fromisoformat(said or "")
        except ValueError:
            return
        if theirs.tzinfo is not None:
            self._ahead = theirs - self._now()


def _end_of(job: Mapping[str, Any]) -> JobEnd | None:
    # A script may end well although a step of it did not.
    code, of_steps = _code(str(job["exitCode"])), _code(str(job.get("derivedExitCode", "")))
    code = of_steps if not code and of_steps is not None else code
    if code is None:
        return None
    at = job.get("endedAt")
    ended_at = None if at is None else datetime.fromisoformat(str(at).replace("Z", "+00:00"))
    return JobEnd(str(job["id"]), code, ended_at if ended_at is None or ended_at.tzinfo else None)


def _code(text: str) -> int | None:
    """Slurm writes `<exit code>:<signal>`, and for a signal sometimes what is none."""
    code, _, number = text.partition(":")
    if not code.isdigit() or not number.isdigit():
        return None
    if int(number) > 0:
        return -int(number) if int(number) <= HIGHEST_SIGNAL else None
    return int(code) if int(code) <= HIGHEST_CODE else None


def _states(answer: Mapping[str, Any]) -> JobStates:
    jobs = answer.get("jobs")
    if not isinstance(jobs, dict):
        raise SchedulerUnreachable("the forwarder answered without the jobs' states")
    return JobStates({str(job): str(state) for job, state in jobs.items()})

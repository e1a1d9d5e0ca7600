"""The stream of events in JetStream: made when it is missing, kept as it should be, published to in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import orjson
import structlog
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, Header, StatusCode, StorageType, StreamConfig, StreamInfo
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from store.event_streams import Seen
from wire.events import CONTENT_TYPE, STREAM, STREAM_SUBJECTS

# Within this JetStream itself drops what is published twice, as after a crash of the pump.
DUPLICATES_SECONDS = timedelta(minutes=10).total_seconds()
# Somebody else published in between, or the same was published before and is not the last.
WRONG_LAST_ID, WRONG_LAST_SEQUENCE = 10070, 10071
OUT_OF_TURN = (WRONG_LAST_ID, WRONG_LAST_SEQUENCE)

log = structlog.get_logger("outbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTerms:
    """How much the stream keeps. When it is full the oldest go: what is new is never held up."""

    max_age: timedelta = timedelta(days=30)
    max_bytes: int = 1024**3
    replicas: int = 1


class Message(NamedTuple):
    """One event as it is sent."""

    topic: str
    event_id: str
    body: bytes


class EventStream:
    """The stream as one connection sees it."""

    def __init__(self, client: NatsClient, terms: StreamTerms, *, timeout_seconds: float) -> None:
        self._client = client
        self._stream = client.jetstream(timeout=timeout_seconds)
        self._terms = terms
        self._timeout_seconds = timeout_seconds
        self._inbox = client.new_inbox()
        self._round: _Round | None = None

    async def settle(self) -> None:
        """Bring a stream that is there to its terms; one that the server will not change goes on as it is."""
        wanted = _config(self._terms)
        try:
            found = (await self._stream.stream_info(STREAM)).config
            differing = {
                name: getattr(wanted, name)
                for name in MANAGED
                if getattr(found, name) != getattr(wanted, name)
            }
            if differing:
                await self._stream.update_stream(found.evolve(**differing))
                log.info("event_stream_changed", changed=sorted(differing))
        except NotFoundError:
            return
        except APIError as error:
            log.warning("event_stream_not_changed", problem=str(error))

    async def look(self) -> Seen:
        """The stream as it is now; one that is missing is made."""
        try:
            return _seen(await self._stream.stream_info(STREAM))
        except NotFoundError:
            return _seen(await self._stream.add_stream(_config(self._terms)))

    async def publish(self, messages: Sequence[Message], after: Seen) -> None:
        """Publish in order; returns when all are acknowledged, raises where one is not.

        All are on their way at once. Each names the message that must stand before it, so that behind one
        that is refused none is taken. `after` is the stream as it was looked at before.
        """
        async with asyncio.timeout(self._timeout_seconds):
            answers = await self._publish_at_once(messages, after)
        looked = False
        for message, answer in zip(messages, answers, strict=True):
            if answer is None:
                continue
            if answer.err_code not in OUT_OF_TURN:
                raise answer
            if not looked and (await self.look()).made_at != after.made_at:
                raise StreamReplaced
            looked = True
            await self._stream.publish(message.topic, message.body, stream=STREAM, headers=_headers(message))

    async def _publish_at_once(self, messages: Sequence[Message], after: Seen) -> list[APIError | None]:
        """What JetStream answers to each: None where it has it, or why it does not."""
        if self._round is None:
            await self._client.subscribe(f"{self._inbox}.*.*", cb=self._answered)
        self._round = _Round(self._round.number + 1 if self._round else 1, len(messages))
        behind = {Header.EXPECTED_LAST_SEQUENCE.value: str(after.last_sequence)}
        for place, message in enumerate(messages):
            headers = _headers(message) | behind | {Header.EXPECTED_STREAM.value: STREAM}
            reply = f"{self._inbox}.{self._round.number}.{place}"
            await self._client.publish(message.topic, message.body, reply=reply, headers=headers)
            behind = {Header.EXPECTED_LAST_MSG_ID.value: message.event_id}
        await self._round.complete.wait()
        return [self._round.answers[place] for place in range(len(messages))]

    async def _answered(self, answer: Msg) -> None:
        number, place = (int(part) for part in answer.subject.split(".")[-2:])
        if self._round is not None and number == self._round.number:
            self._round.answers[place] = _problem(answer)
            if len(self._round.answers) == self._round.size:
                self._round.complete.set()


class _Round:
    """What was answered to the messages of one batch; answers to an earlier one count no more."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.answers: dict[int, APIError | None] = {}
        self.complete = asyncio.Event()


class StreamReplaced(Exception):
    """Another stream stands where this one stood a moment ago."""

    def __init__(self) -> None:
        super().__init__(f"stream {STREAM} was made anew while events were published to it")


MANAGED = ("subjects", "storage", "discard", "max_age", "max_bytes", "duplicate_window", "num_replicas")


def _config(terms: StreamTerms) -> StreamConfig:
    return StreamConfig(
        name=STREAM,
        description="Events of the compute pool service, in order for each key",
        subjects=list(STREAM_SUBJECTS),
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=terms.max_age.total_seconds(),
        max_bytes=terms.max_bytes,
        duplicate_window=min(DUPLICATES_SECONDS, terms.max_age.total_seconds()),
        num_replicas=terms.replicas,
    )


def _seen(info: StreamInfo) -> Seen:
    assert info.created is not None
    return Seen(info.created, info.state.last_seq)


def _headers(message: Message) -> dict[str, str]:
    return {Header.MSG_ID.value: message.event_id, "Content-Type": CONTENT_TYPE}


def _problem(answer: Msg) -> APIError | None:
    """What is wrong by an answer of JetStream. Nobody answers for a subject that no stream takes."""
    if answer.headers and answer.headers.get(Header.STATUS.value) == StatusCode.SERVICE_UNAVAILABLE.value:
        return ServiceUnavailableError(code=503, description=f"no stream takes {STREAM_SUBJECTS[0]}")
    error = orjson.loads(answer.data).get("error")
    if error is None:
        return None
    return APIError(code=error["code"], err_code=error.get("err_code"), description=error.get("description"))

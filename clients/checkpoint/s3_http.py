"""Requests to an S3-compatible store: signed, tried again within limits, over one connection per thread."""

from __future__ import annotations

import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from clients.checkpoint.errors import StoreDownError, StoreRefusedError
from clients.checkpoint.s3_signing import S3Credentials, sign

# An answer that is larger than this is not one of ours.
MAX_ANSWER = 1 << 30
# What passes by itself; besides, everything from 500 on but what the store will never do.
PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})
# Stores have different words for a clock that is off, and none in an answer to HEAD. But all tell their time.
REFUSING = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
SKEWED_SECONDS = 60
# Answers with 400 that pass all the same: the store did not read the whole request in its time.
PASSING_CODES = frozenset({"RequestTimeout"})
BREAKS = (OSError, http.client.HTTPException)
LONGEST_PAUSE_SECONDS = 5.0


class Retry(NamedTuple):
    """How long a store is given: per attempt, between attempts (doubling), and in all."""

    attempts: int = 5
    attempt_seconds: float = 20.0
    pause_seconds: float = 0.2
    total_seconds: float = 60.0


class Answer(NamedTuple):
    """A store's answer; header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class S3Http:
    """Sends requests for one bucket. Safe for threads."""

    def __init__(
        self,
        endpoint: str,
        region: str,
        credentials: Callable[[], S3Credentials],
        *,
        retry: Retry,
        tls: ssl.SSLContext | None,
        now: Callable[[], datetime] | None = None,
        steady: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(
                f"{endpoint!r} is no endpoint: use https://host[:port][/path], without a password"
            )
        self._secure = parts.scheme == "https"
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._netloc = parts.netloc
        self._region, self._credentials, self._retry, self._tls = region, credentials, retry, tls
        self._now = now or (lambda: datetime.now(UTC))
        self._steady, self._sleep = steady, sleep
        self._clock_off = timedelta(0)
        self._own = threading.local()
        self._dice = random.Random()  # noqa: S311 - spreads load, guards nothing

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """The store's first answer that is not a passing failure.

        StoreDownError when there is none within the limits, StoreRefusedError when access is denied.
        """
        began = self._steady()
        failure = "no attempt was made"
        for attempt in range(self._retry.attempts):
            if attempt and not self._pause(attempt, began):
                break
            try:
                answer = self.try_once(method, path, query=query, headers=headers, body=body)
            except BREAKS as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            if not _passes(answer) and not self._was_skewed(answer):
                return _allowed(answer, f"{method} {path}")
            failure = said(answer)
        raise StoreDownError(f"{method} {path} on {self._netloc} failed, last with {failure}")

    def _pause(self, attempt: int, began: float) -> bool:
        pause = min(self._retry.pause_seconds * 2 ** (attempt - 1), LONGEST_PAUSE_SECONDS)
        pause *= self._dice.uniform(0.5, 1.5)
        if self._steady() + pause - began > self._retry.total_seconds:
            return False
        self._sleep(pause)
        return True

    def try_once(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Whatever the store answers to one request. OSError or HTTPException when the line breaks."""
        try:
            return self._once(method, path, query or {}, headers or {}, body)
        except BREAKS:
            self._hang_up()
            raise

    def _once(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Answer:
        request = sign(
            method,
            self._netloc,
            self._base + path,
            query=query,
            headers=headers,
            body=body,
            region=self._region,
            credentials=self._credentials(),
            now=self._now() + self._clock_off,
        )
        connection = self._connection()
        connection.request(method, request.target, body=body or None, headers=request.headers)
        response = connection.getresponse()
        content = response.read(MAX_ANSWER)
        if len(content) >= MAX_ANSWER:
            raise http.client.HTTPException(f"an answer of more than {MAX_ANSWER} bytes")
        if not response.isclosed():
            raise http.client.IncompleteRead(content, response.length)
        received = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self._hang_up()
        return Answer(response.status, received, content)

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            timeout = self._retry.attempt_seconds
            if self._secure:
                tls = self._tls or ssl.create_default_context()
                connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=tls)
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._own.connection = connection
        return connection

    def _hang_up(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        self._own.connection = None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def _was_skewed(self, answer: Answer) -> bool:
        """Whether a refusal may be due to our clock; from now on requests bear the store's time."""
        if answer.status not in REFUSING:
            return False
        try:
            theirs = parsedate_to_datetime(answer.headers.get("date", ""))
            off = theirs - self._now()
        except (ValueError, TypeError):
            # There is no date, or one without an offset from UTC.
            return False
        if abs(off - self._clock_off) < timedelta(seconds=SKEWED_SECONDS):
            return False
        self._clock_off = off
        return True


def _passes(answer: Answer) -> bool:
    if answer.status == HTTPStatus.NOT_IMPLEMENTED:
        return False
    if answer.status == HTTPStatus.BAD_REQUEST:
        return code_of(answer) in PASSING_CODES
    return answer.status in PASSING or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _allowed(answer: Answer, what: str) -> Answer:
    if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise StoreRefusedError(
            f"{what} is not allowed: check credentials, bucket and its policy ({said(answer)})"
        )
    return answer


def code_of(answer: Answer) -> str:
    """The store's own word for what is wrong, empty if it gives none."""
    start, end = answer.body.find(b"<Code>"), answer.body.find(b"</Code>")
    return answer.body[start + 6 : end][:80].decode("ascii", "replace") if 0 <= start < end else ""


def said(answer: Answer) -> str:
    """An answer in few words, such as `status 503 SlowDown`."""
    return f"status {answer.status} {code_of(answer)}".strip()


def refused(answer: Answer, what: str) -> StoreRefusedError:
    """The error for an answer that nobody expected."""
    return StoreRefusedError(f"{what} was answered with {said(answer)}")

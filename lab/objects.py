"""An object store that fails on purpose: as much of S3 as a checkpoint needs, with faults to order.

It stands in for what no ready-made server does when asked: answer 500, hang up half-way, take long, or leave
out of a listing what was just written. Whether a client speaks S3 at all is to be tried on a real server.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from lab.stack.ports import LOOPBACK

MAX_BODY = 64 * 1024 * 1024
PAGE = 100


class StoreFault(StrEnum):
    """What happens to one request, in the order in which they come."""

    NONE = "none"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed_out"
    BAD_DIGEST = "bad_digest"
    NO_CONDITIONS = "no_conditions"
    TAKEN_THEN_UNAVAILABLE = "taken_then_unavailable"
    TORN = "torn"
    HANG_UP = "hang_up"
    SLOW = "slow"


# What different stores mean by 400: try again, never, or not under a condition.
BAD_REQUESTS = {
    StoreFault.TIMED_OUT: "RequestTimeout",
    StoreFault.BAD_DIGEST: "BadDigest",
    StoreFault.NO_CONDITIONS: "InvalidArgument",
}


class ObjectStore:
    """One bucket in memory, served on loopback while it is a context."""

    def __init__(self, bucket: str = "bucket", *, slow_seconds: float = 1.0) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults: deque[StoreFault] = deque()
        # Keys that listings do not show yet.
        self.unlisted: set[str] = set()
        self.requests = 0
        self.bucket, self.slow_seconds = bucket, slow_seconds
        self.lock = threading.Lock()
        self._closed = False
        store = self

        class Handler(_Handler):
            objects = store

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Connections that clients keep open are served by threads of their own.
        self._closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_fault(self) -> StoreFault:
        with self.lock:
            self.requests += 1
            if self._closed:
                return StoreFault.HANG_UP
            return self.faults.popleft() if self.faults else StoreFault.NONE

    def page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """The keys of one page of a listing, and whether there are more."""
        with self.lock:
            keys = sorted(k for k in self.objects if k.startswith(prefix) and k not in self.unlisted)
        following = [key for key in keys if key > after]
        return following[:PAGE], len(following) > PAGE


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ObjectStore

    def do_PUT(self) -> None:
        self._serve(self._put)

    def do_GET(self) -> None:
        self._serve(self._get)

    def do_HEAD(self) -> None:
        self._serve(self._get)

    def do_DELETE(self) -> None:
        self._serve(self._delete)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: tests look at the store itself."""

    def _serve(self, work: Callable[[], tuple[HTTPStatus, bytes]]) -> None:
        length = min(int(self.headers.get("content-length") or 0), MAX_BODY)
        self._body = self.rfile.read(length)
        fault = self.objects.next_fault()
        self._torn = fault is StoreFault.TORN
        if fault is StoreFault.UNAVAILABLE:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _error("SlowDown"))
        if fault in BAD_REQUESTS:
            return self._answer(HTTPStatus.BAD_REQUEST, _error(BAD_REQUESTS[fault]))
        if fault is StoreFault.HANG_UP:
            self.close_connection = True
            return None
        if fault is StoreFault.SLOW:
            time.sleep(self.objects.slow_seconds)
        status, body = work()
        if fault is StoreFault.TAKEN_THEN_UNAVAILABLE:
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, _error("InternalError")
        return self._answer(status, body)

    def _put(self) -> tuple[HTTPStatus, bytes]:
        key = self._key()
        with self.objects.lock:
            if self.headers.get("if-none-match") == "*" and key in self.objects.objects:
                return HTTPStatus.PRECONDITION_FAILED, _error("PreconditionFailed")
            self.objects.objects[key] = self._body
        return HTTPStatus.OK, b""

    def _get(self) -> tuple[HTTPStatus, bytes]:
        if "list-type" in parse_qs(urlsplit(self.path).query):
            return HTTPStatus.OK, self._listing()
        body = self.objects.objects.get(self._key())
        return (HTTPStatus.NOT_FOUND, _error("NoSuchKey")) if body is None else (HTTPStatus.OK, body)

    def _delete(self) -> tuple[HTTPStatus, bytes]:
        with self.objects.lock:
            self.objects.objects.pop(self._key(), None)
        return HTTPStatus.NO_CONTENT, b""

    def _listing(self) -> bytes:
        query = parse_qs(urlsplit(self.path).query)
        after = query.get("continuation-token", [""])[0]
        keys, more = self.objects.page(query.get("prefix", [""])[0], after)
        found = "".join(f"<Contents><Key>{escape(key)}</Key></Contents>" for key in keys)
        token = f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>" if more else ""
        return f"<ListBucketResult>{found}{token}</ListBucketResult>".encode()

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{self.objects.bucket}/")

    def _answer(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self._torn:
            body, self.close_connection = body[: len(body) // 2], True
        if self.command != "HEAD":
            self.wfile.write(body)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()

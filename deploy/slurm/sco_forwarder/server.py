"""The HTTP side: bounded requests in, one JSON answer and one audit line for each."""

from __future__ import annotations

import io
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any

from .crowd import Crowd
from .gate import TIME, Asked, Gate, Refused, time_text
from .orders import Body, Orders

MAX_BODY = 8 * 1024
# For a handshake, for all of a request, and for all of an answer.
READ_SECONDS = 5.0
MAX_CONNECTIONS = 256
# Requests of a whole cluster may come within a second; they wait here rather than being turned away.
BACKLOG = 1024

log = logging.getLogger("sco-forwarder")


class Server(ThreadingHTTPServer):
    """Serves until it is shut down, with so many connections at once at most."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(
        self, address: tuple[str, int], gate: Gate, orders: Orders, tls: ssl.SSLContext | None = None
    ) -> None:
        self.gate = gate
        self.orders = orders
        self._tls = tls
        self._crowd = Crowd(MAX_CONNECTIONS)
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._crowd.let_in(request, client_address[0]):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No thread could be started, so nobody else gives the place back.
            self._crowd.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(self._secured(request), client_address)
        except OSError as error:
            log.info("a connection ended early: %s", error)
            self.shutdown_request(request)
        finally:
            self._crowd.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.info("a connection ended early", exc_info=log.isEnabledFor(logging.DEBUG))

    def _secured(self, request: socket) -> socket:
        """In the connection's own thread, where a slow handshake keeps nobody else waiting."""
        request.settimeout(READ_SECONDS)
        return request if self._tls is None else self._tls.wrap_socket(request, server_side=True)


class Handler(BaseHTTPRequestHandler):
    """One request, then the connection ends."""

    server: Server
    server_version = "sco-forwarder"
    sys_version = ""
    timeout = READ_SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Limited(self.connection, READ_SECONDS))

    def do_POST(self) -> None:
        began = time.monotonic()
        said: Body = {"instance": self.headers.get("sco-instance", "")[:80], "order": self.path[:80]}
        status, answer = self._answer(said)
        took = round((time.monotonic() - began) * 1000, 1)
        log.info("audit %s", json.dumps(said | {"status": status, "ms": took} | _brief(answer)))
        self._send(status, answer)

    def do_GET(self) -> None:
        """Whether it runs; it says nothing about Slurm."""
        self._send(200 if self.path == "/health" else 404, {})

    def log_message(self, format: str, *args: Any) -> None:
        """Every request has its audit line instead."""

    def _answer(self, said: Body) -> tuple[int, Body]:
        try:
            asked = self._read()
            node = self.server.gate.admit(asked)
            said["node"] = node.name
            body = _parse(asked.body)
            said["asks"] = body
            return 200, self.server.orders.carry_out(asked.target, node, body)
        except Refused as refused:
            return refused.status, {"reason": refused.reason, "detail": str(refused)}
        except Exception:
            log.exception("an order failed")
            return 500, {"reason": "failed", "detail": "this program failed; its log says why"}

    def _read(self) -> Asked:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= MAX_BODY):
            raise Refused(413, "too_large", f"a body of at most {MAX_BODY} bytes with its length is read")
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = self.rfile.read(int(length))
        except TimeoutError:
            raise Refused(408, "too_slow", f"a request has {READ_SECONDS:.0f} seconds to come") from None
        return Asked(self.command, self.path, headers, body)

    def _send(self, status: int, answer: Body) -> None:
        body = json.dumps(answer).encode()
        self.connection.settimeout(READ_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header(TIME, time_text(time.time()))
        self.end_headers()
        self.wfile.write(body)


class _Limited(io.RawIOBase):
    """What comes over a connection within so many seconds, however many pieces it comes in."""

    def __init__(self, connection: socket, seconds: float) -> None:
        self._connection = connection
        self._ends = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not come in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def _parse(raw: bytes) -> Body:
    try:
        body = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise Refused(400, "malformed", "the body is no JSON") from error
    if not isinstance(body, dict):
        raise Refused(400, "malformed", "the body must be an object")
    return body


def _brief(answer: Body) -> Body:
    """What of an answer goes into the audit line; a list of jobs is told by its length."""
    found = answer.get("jobs")
    return {"jobs": len(found)} if isinstance(found, list) else {"answer": answer}


def stopper(server: Server) -> Callable[..., None]:
    """A signal handler that ends `serve_forever` from another thread, as it must be."""

    def stop(*_: Any) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    return stop

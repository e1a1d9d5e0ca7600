"""Serving a WSGI application on loopback, from a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

LOOPBACK = "127.0.0.1"
PORTS_VARIABLE = "LAB_PORTS"
SOCKET_KEY = "werkzeug.socket"
"""Where a request's environment holds its connection."""

Environ = dict[str, Any]
Application = Callable[[Environ, Any], Iterable[bytes]]


class _QuietHandler(WSGIRequestHandler):
    # Head and body are written apart; the second must not wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    def log(self, type: str, message: str, *args: Any) -> None:
        """The services log their requests themselves."""


def server(app: Application, port: int) -> BaseWSGIServer:
    """A server with a thread for each connection, which stays open between requests."""
    return make_server(LOOPBACK, port, app, threaded=True, request_handler=_QuietHandler)


def serve_in_thread(app: Application, port: int) -> None:
    threading.Thread(target=server(app, port).serve_forever, daemon=True, name=f"http-{port}").start()

"""Faults between a client and Nova's API: answers lost, late, or in Nova's stead."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

from lab.openstack.server.serving import SOCKET_KEY, Application, Environ

FAULTS_PATH = "/lab/faults"


class FaultShim:
    """In front of `app`. `PUT /lab/faults` takes a list of rules, `GET` answers what is left of them.

    A rule names the requests it hits with `method` and `path` (a regular expression), and how many of
    them with `times`. For each, Nova does its work first when `works` is true; the client then waits
    `delay_seconds`, and gets `status` with `headers`, or no answer at all with `drop`, or Nova's own.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._rules: list[dict[str, Any]] = []

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == FAULTS_PATH:
            return self._control(environ, start_response)
        rule = self._take(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if rule is None:
            return self._app(environ, start_response)
        return self._misbehave(rule, environ, start_response)

    def _control(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        with self._lock:
            if environ["REQUEST_METHOD"] == "PUT":
                self._rules = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            return _answer(start_response, 200, self._rules, {})

    def _take(self, method: str, path: str) -> dict[str, Any] | None:
        with self._lock:
            for rule in self._rules:
                if rule["times"] > 0 and rule["method"] in (None, method) and re.search(rule["path"], path):
                    rule["times"] -= 1
                    return rule
        return None

    def _misbehave(self, rule: dict[str, Any], environ: Environ, start_response: Any) -> Iterable[bytes]:
        kept: list[tuple[str, list[tuple[str, str]]]] = []
        parts: Iterable[bytes] = ()
        if rule["works"]:
            parts = list(self._app(environ, lambda status, headers, *_: kept.append((status, headers))))
        time.sleep(rule["delay_seconds"])
        if rule["drop"]:
            environ[SOCKET_KEY].shutdown(socket.SHUT_RDWR)
            return ()
        if rule["status"] is not None:
            said = {"injected": {"code": rule["status"], "message": "the laboratory answered instead"}}
            return _answer(start_response, rule["status"], said, rule["headers"])
        if not kept:
            return self._app(environ, start_response)
        start_response(*kept[0])
        return parts


def _answer(start_response: Any, status: int, body: Any, headers: dict[str, str]) -> Iterable[bytes]:
    content = json.dumps(body).encode()
    shown = {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}
    start_response(f"{status} Laboratory", list(shown.items()))
    return [content]

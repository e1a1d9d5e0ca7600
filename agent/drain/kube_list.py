"""Reads a list of pods while it arrives: a whole list takes some MiB, and as objects ten times that."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from agent.drain.kube_answers import read_body, shaped
from agent.drain.kube_pods import Pod, read_pod

# Within a text of JSON every quote has a backslash before it, so that this is the list itself.
ITEMS = re.compile(r'"items"\s*:\s*\[')
BETWEEN = " \t\r\n,"
MAX_LIST, MAX_POD = 32 * 1024 * 1024, 4 * 1024 * 1024


class ListReader:
    """Takes the parts of an answer. Raises ValueError for what is no list of pods, or too long."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._head: str | None = None
        self._text = ""
        self._read = 0
        self._pods: list[Pod] = []

    def feed(self, part: bytes) -> None:
        self._read += len(part)
        if self._read > MAX_LIST:
            raise ValueError(f"a list of more than {MAX_LIST} bytes")
        self._text += self._utf8.decode(part)
        if self._head is None and (begins := ITEMS.search(self._text)):
            self._head, self._text = self._text[: begins.end()], self._text[begins.end() :]
        if self._head is not None:
            with shaped():
                self._take_pods()
        if len(self._text) > MAX_POD:
            raise ValueError(f"a pod of more than {MAX_POD} bytes")

    def end(self) -> tuple[str, tuple[Pod, ...]]:
        """The version of the list, and its pods. What is left of the answer has to be whole without them."""
        version = read_body((self._head or "") + self._text, _version)
        return version, tuple(self._pods)

    def _take_pods(self) -> None:
        at = 0
        while (begins := self._text.find("{", at)) >= 0 and not self._text[at:begins].strip(BETWEEN):
            try:
                raw, at = self._decoder.raw_decode(self._text, begins)
            except json.JSONDecodeError:
                # Half a pod; or no JSON at all, which the end shows.
                break
            self._pods.append(read_pod(raw))
        self._text = self._text[at:].lstrip(BETWEEN)


def _version(raw: Any) -> str:
    if raw["items"]:
        raise ValueError("a list of something else than pods")
    return str(raw["metadata"]["resourceVersion"])

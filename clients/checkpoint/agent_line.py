"""Tells the agent of this node what became of a checkpoint. Nothing depends on whether it hears."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from typing import Any

ANSWER_SECONDS = 1.0
MAX_REASON = 120


class AgentLine:
    """Reports over the agent's socket; without an agent they go nowhere."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else os.fspath(path)

    def checkpointed(self, generation: int, size: int, *, final: bool) -> None:
        self._say({"op": "checkpointed", "generation": generation, "bytes": size, "final": final})

    def released(self, generation: int, reason: str) -> None:
        self._say({"op": "released", "generation": generation, "reason": reason[:MAX_REASON]})

    def _say(self, fields: dict[str, Any]) -> None:
        if self._path is None:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ANSWER_SECONDS)
            line.connect(self._path)
            line.sendall(json.dumps(fields).encode() + b"\n")
            line.recv(4096)

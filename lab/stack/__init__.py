"""Postgres, Temporal and NATS from Python packages, as one stack on loopback."""

from __future__ import annotations

from lab.stack.errors import StackError
from lab.stack.ports import Ports
from lab.stack.stack import DEFAULT_DATA_DIR, ServerStatus, Stack

__all__ = ["DEFAULT_DATA_DIR", "Ports", "ServerStatus", "Stack", "StackError"]

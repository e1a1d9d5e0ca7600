"""What can go wrong with the embedded stack, each error telling its reader what to do."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack cannot do what was asked; the message says why and what to do."""


class PortTakenError(StackError):
    """A port that was asked for by number cannot be used."""


class MissingBinaryError(StackError):
    """A server's binary is not installed in this Python environment."""


class ServerFailedError(StackError):
    """A server exited or did not become ready; the message ends with its last log lines."""


class StackBusyError(StackError):
    """Another process has been starting or stopping this stack for too long."""

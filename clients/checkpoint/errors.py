"""What can go wrong with a checkpoint, as the workload has to tell it apart."""

from __future__ import annotations


class CheckpointError(Exception):
    """The base of all errors of this package. The message says what was wrong and what to do."""


class StoreDownError(CheckpointError):
    """The store does not answer. Nothing half-written counts; try again later."""


class StoreRefusedError(CheckpointError):
    """The store does not allow it: credentials, bucket or key are wrong. Trying again is in vain."""


class MissingError(CheckpointError):
    """There is no object under this key."""


class DamagedError(CheckpointError):
    """What was read is not what was written."""


class LeaseHeldError(CheckpointError):
    """Another writer of this workload holds the lease and has not let it lapse."""


class LeaseLostError(CheckpointError):
    """Another writer took over. This one must not write any more: end it."""

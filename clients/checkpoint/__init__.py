"""The checkpoint client for workloads: the standard library alone."""

from clients.checkpoint.client import Checkpoints, Saved
from clients.checkpoint.clock import Clock
from clients.checkpoint.errors import (
    CheckpointError,
    DamagedError,
    LeaseHeldError,
    LeaseLostError,
    MissingError,
    StoreDownError,
    StoreRefusedError,
)
from clients.checkpoint.generations import Checkpoint, Content
from clients.checkpoint.keeping import Keep
from clients.checkpoint.local_store import LocalStore
from clients.checkpoint.notice import Notice, NoticeListener
from clients.checkpoint.s3_http import Retry
from clients.checkpoint.s3_signing import S3Credentials
from clients.checkpoint.s3_store import S3Store
from clients.checkpoint.store import Store

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Checkpoints",
    "Clock",
    "Content",
    "DamagedError",
    "Keep",
    "LeaseHeldError",
    "LeaseLostError",
    "LocalStore",
    "MissingError",
    "Notice",
    "NoticeListener",
    "Retry",
    "S3Credentials",
    "S3Store",
    "Saved",
    "Store",
    "StoreDownError",
    "StoreRefusedError",
]

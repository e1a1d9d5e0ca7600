"""Nova's versioned notifications, written down as they are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import oslo_messaging
from nova import rpc

TOPIC = "versioned_notifications"


class NotificationFile:
    """Appends each notification to a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def info(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self._write("INFO", publisher_id, event_type, payload, metadata)

    def error(self, ctxt: Any, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        self._write("ERROR", publisher_id, event_type, payload, metadata)

    def _write(self, priority: str, publisher_id: str, event_type: str, payload: Any, metadata: Any) -> None:
        line = {
            "priority": priority,
            "event_type": event_type,
            "publisher_id": publisher_id,
            "message_id": metadata["message_id"],
            "timestamp": metadata["timestamp"],
            "payload": payload,
        }
        self._file.write(json.dumps(line) + "\n")


def record(path: Path) -> None:
    """Start to write down every notification."""
    listener = oslo_messaging.get_notification_listener(
        rpc.NOTIFICATION_TRANSPORT,
        [oslo_messaging.Target(topic=TOPIC)],
        [NotificationFile(path)],
        executor="threading",
    )
    listener.start()

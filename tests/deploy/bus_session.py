"""Runs in the cloud's environment: the bridge on a message bus in memory, and a Nova that tells on it.

usage: bus_session.py BRIDGE NUMBER. So many notifications are sent with oslo.messaging's own notifier, as
Nova does. The bridge runs until it is told to stop.
"""

from __future__ import annotations

import runpy
import sys
import tempfile
import threading
import uuid
from importlib import import_module
from pathlib import Path

# Only the cloud's environment has them, so they cannot be checked here.
oslo_messaging = import_module("oslo_messaging")
cfg = import_module("oslo_config.cfg")

TRANSPORT = "fake://"
TOPIC = "sco_notifications"


def tell(number: int) -> None:
    """Send them as Nova's notifier does."""
    conf = cfg.ConfigOpts()
    conf([], project="nova")
    transport = oslo_messaging.get_notification_transport(conf, url=TRANSPORT)
    notifier = oslo_messaging.Notifier(
        transport, publisher_id="nova-compute:host", driver="messagingv2", topics=[TOPIC]
    )
    for place in range(1, number + 1):
        data = {"uuid": str(uuid.UUID(int=place)), "state": "deleted", "metadata": {"sco_batch": "b-1"}}
        payload = {"nova_object.name": "InstanceActionPayload", "nova_object.data": data}
        notify = notifier.error if place % 2 else notifier.info
        notify({}, "instance.delete.end", payload)


def main() -> None:
    bridge, number = sys.argv[1], int(sys.argv[2])
    threading.Thread(target=tell, args=(number,), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "bridge.conf"
        config.write_text(f"[DEFAULT]\ntransport_url = {TRANSPORT}\n")
        sys.argv = [bridge, "--region", "eu-north", "--config-file", str(config), "--topic", TOPIC]
        runpy.run_path(bridge, run_name="__main__")


if __name__ == "__main__":
    main()

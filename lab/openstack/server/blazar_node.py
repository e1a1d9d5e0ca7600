"""All of Blazar in one process: the manager that keeps leases and runs their events, and its API.

Arguments: its settings file, its port, and the address of Placement. Messages between the two need no
broker this way. The settings name an empty database, whose tables are made from the models.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import gettext
import sys
from typing import Any

gettext.install("blazar")

import blazar.cmd.api  # noqa: E402, F401 - it registers settings
from blazar.api.app import VersionSelectorApplication  # noqa: E402
from blazar.db.sqlalchemy import facade_wrapper, models  # noqa: E402
from blazar.manager import service  # noqa: E402
from blazar.notification import notifier  # noqa: E402
from blazar.utils import service as service_utils  # noqa: E402
from blazar.utils.openstack.placement import BlazarPlacementClient  # noqa: E402
from keystoneauth1 import adapter, session, token_endpoint  # noqa: E402
from oslo_config import cfg  # noqa: E402

from lab.openstack.server.serving import server  # noqa: E402

PROGRAM = "lab-blazar"
PLACEMENT_TOKEN = "admin"  # noqa: S105 - Placement takes the role for a token
EVENT_SECONDS = 1
"""Between two looks at what is due: a tenth of the usual, since a suite waits for it."""


def main() -> None:
    settings, port, placement_url = sys.argv[1:]
    cfg.CONF(["--config-file", settings], project="blazar", prog=PROGRAM)
    service_utils.prepare_service([PROGRAM])
    models.Lease.metadata.create_all(facade_wrapper._get_facade().writer.get_engine())
    notifier.init()
    BlazarPlacementClient._create_client = _placement_at(placement_url)
    service.EVENT_INTERVAL = EVENT_SECONDS
    manager = service.ManagerService()
    manager.start()
    server(VersionSelectorApplication(), int(port)).serve_forever()


def _placement_at(url: str) -> Any:
    """Placement without Keystone, as Nova beside it has it."""
    auth = token_endpoint.Token(url, PLACEMENT_TOKEN)

    def create(_: BlazarPlacementClient, **__: Any) -> adapter.Adapter:
        headers = {"accept": "application/json"}
        return adapter.Adapter(session.Session(auth), service_type="placement", additional_headers=headers)

    return create


if __name__ == "__main__":
    main()

"""Make Nova's tables and tell it of its cells. Run once, before Nova."""

from __future__ import annotations

import sys

from nova import config, context, objects
from nova.conf import CONF
from nova.db import migration
from nova.objects.cell_mapping import CellMapping
from oslo_utils import uuidutils

NO_TRANSPORT = "none:///"


def main() -> None:
    """Arguments: the addresses of the databases of cell0 and of cell1, which is a copy of cell0's."""
    cell0_url, cell1_url = sys.argv[-2:]
    config.parse_args(sys.argv[:-2])
    objects.register_all()
    migration.db_sync(database="api")
    admin = context.get_admin_context()
    first = _map(admin, CellMapping.CELL0_UUID, "cell0", NO_TRANSPORT, cell0_url)
    _map(admin, uuidutils.generate_uuid(), "cell1", CONF.transport_url, cell1_url)
    with context.target_cell(admin, first) as inside:
        migration.db_sync(context=inside)


def _map(admin: object, cell_id: str, name: str, transport_url: str, database_url: str) -> CellMapping:
    cell = CellMapping(
        admin,
        uuid=cell_id,
        name=name,
        transport_url=transport_url,
        database_connection=database_url,
        disabled=False,
    )
    cell.create()
    return cell


if __name__ == "__main__":
    main()

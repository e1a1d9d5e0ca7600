"""Runs in the environment of OpenStack: what Nova puts into an instance's dynamic vendordata.

Usage: ask_vendordata.py TARGET SERVER_ID
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import nova.conf
from nova.api.metadata.vendordata_dynamic import DynamicVendorData


def main(target: str, server_id: str) -> None:
    configured = nova.conf.CONF
    configured([], project="nova", default_config_files=[])
    configured.set_override("vendordata_dynamic_targets", [target], group="api")
    configured.set_override("vendordata_dynamic_connect_timeout", 30, group="api")
    configured.set_override("vendordata_dynamic_read_timeout", 60, group="api")
    instance = SimpleNamespace(
        project_id="p",
        uuid=server_id,
        image_ref="i",
        user_data="I2Nsb3VkLWNvbmZpZwo=",
        hostname="sco-1",
        metadata={"sco_workload": "orders-daily"},
        system_metadata={},
    )
    print(json.dumps(DynamicVendorData(instance).get()))


if __name__ == "__main__":
    main(*sys.argv[1:])

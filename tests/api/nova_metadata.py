"""Runs in the environment of OpenStack: Nova's settings as it reads them, and its metadata as it serves them.

Usage: nova_metadata.py settings FILE, which prints the value of every option of the file.
       nova_metadata.py reads TARGET SERVER_ID NUMBER, which prints what so many reads of one instance show.
"""

from __future__ import annotations

import configparser
import json
import sys
from types import SimpleNamespace
from typing import Any

import nova.conf
from nova.api.metadata import base, handler
from nova.api.metadata.vendordata_dynamic import DynamicVendorData

WHERE = "/openstack/latest/vendor_data2.json"


def settings(path: str) -> dict[str, Any]:
    """By group and option. Nova's own error for an option that it does not know, or does not take."""
    nova.conf.CONF([], project="nova", default_config_files=[path])
    written = configparser.ConfigParser(interpolation=None)
    written.read(path)
    return {
        group: {option: nova.conf.CONF[group][option] for option in written.options(group)}
        for group in written.sections()
    }


def reads(target: str, server_id: str, number: int) -> dict[str, Any]:
    """What each read shows, and how often Nova put the instance's metadata together for all of them."""
    configured = nova.conf.CONF
    configured([], project="nova", default_config_files=[])
    configured.set_override("vendordata_providers", ["DynamicJSON"], group="api")
    configured.set_override("vendordata_dynamic_targets", [target], group="api")
    made = 0

    def make(instance_id: str, _: str) -> base.InstanceMetadata:
        nonlocal made
        made += 1
        return _metadata_of(instance_id)

    base.get_metadata_by_instance_id = make
    service = handler.MetadataRequestHandler()
    shown = []
    for _ in range(number):
        found = service.get_metadata_by_instance_id(server_id, "10.0.0.7")
        shown.append(json.loads(found.lookup(WHERE)))
    return {"made": made, "shown": shown}


def _metadata_of(instance_id: str) -> base.InstanceMetadata:
    """An instance without disk, network or database: what its vendordata needs."""
    instance = SimpleNamespace(
        project_id="p",
        uuid=instance_id,
        image_ref="i",
        user_data="",
        hostname="sco-1",
        metadata={},
        system_metadata={},
    )
    made = base.InstanceMetadata.__new__(base.InstanceMetadata)
    made.instance = instance
    made.route_configuration = None
    made.vendordata_providers = {"DynamicJSON": DynamicVendorData(instance=instance)}
    return made


if __name__ == "__main__":
    if sys.argv[1] == "settings":
        print(json.dumps(settings(sys.argv[2])))
    else:
        print(json.dumps(reads(sys.argv[2], sys.argv[3], int(sys.argv[4]))))

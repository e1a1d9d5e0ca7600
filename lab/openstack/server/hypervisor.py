"""Nova's fake hypervisor with hosts of different size, and builds that take time or fail as asked."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any

from nova import context, exception, objects
from nova.virt import fake

SIZES_VARIABLE = "LAB_HOST_VCPUS"
BUILD_SECONDS, BUILD_FAILS = "lab_build_seconds", "lab_build_fails"
"""Metadata of a server that slows its build down, or makes it fail: `abort` or `reschedule`."""
MIB_PER_VCPU, GB_PER_VCPU = 8 * 1024, 100


class LabDriver(fake.FakeDriver):  # type: ignore[misc]
    """One node for each host. Its id follows from its name, so that it is the same after a restart."""

    def init_host(self, host: str) -> None:
        """Take the host's size, and the servers that it ran before the process was restarted."""
        vcpus = json.loads(os.environ[SIZES_VARIABLE])[host]
        self.vcpus, self.memory_mb, self.local_gb = vcpus, vcpus * MIB_PER_VCPU, vcpus * GB_PER_VCPU
        super().init_host(host)
        for instance in objects.InstanceList.get_by_host(context.get_admin_context(), host):
            if instance.vm_state == "active":
                self.instances[instance.uuid] = fake.FakeInstance(instance.name, 1, instance.uuid)

    def get_available_resource(self, nodename: str) -> Any:
        found = super().get_available_resource(nodename)
        if found:
            found["uuid"] = _node_id(nodename)
        return found

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        return {_node_id(name): name for name in self.get_available_nodes()}

    def spawn(self, ctx: Any, instance: Any, *args: Any, **options: Any) -> None:
        time.sleep(float(instance.metadata.get(BUILD_SECONDS, 0)))
        match instance.metadata.get(BUILD_FAILS):
            case "abort":
                raise exception.BuildAbortException(
                    instance_uuid=instance.uuid, reason="asked for by the test"
                )
            case "reschedule":
                raise exception.ComputeResourcesUnavailable(reason="asked for by the test")
        super().spawn(ctx, instance, *args, **options)


def _node_id(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))

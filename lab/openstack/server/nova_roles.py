"""All of Nova in one process: API, conductor, scheduler and a compute service for each fake host.

Placement and the stub of the other services are served beside it. What it needs to know is in the
environment, set by `lab.openstack.running`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import os_vif
from nova import conf, context, objects, service
from nova.api.openstack import wsgi_app
from nova.objects import host_mapping
from nova.virt import fake
from placement.wsgi import init_application

from lab.openstack.server import notifications, stub
from lab.openstack.server.faults import FaultShim
from lab.openstack.server.hypervisor import SIZES_VARIABLE, LabDriver
from lab.openstack.server.serving import PORTS_VARIABLE, Application, Environ, serve_in_thread

NOTIFICATIONS_VARIABLE = "LAB_NOTIFICATIONS"
READY = "nova serves"
API, PROGRAM = "osapi_compute", "lab-nova"


def run() -> None:
    ports = json.loads(os.environ[PORTS_VARIABLE])
    serve_in_thread(stub.application, ports["stub"])
    serve_in_thread(_everybody_is_admin(init_application()), ports["placement"])
    wsgi_app.init_global_data(wsgi_app._get_config_files(), API, PROGRAM)
    notifications.record(Path(os.environ[NOTIFICATIONS_VARIABLE]))
    kept = _start_services(list(json.loads(os.environ[SIZES_VARIABLE])))
    serve_in_thread(FaultShim(wsgi_app.init_application(API, PROGRAM)), ports["nova"])
    sys.stdout.write(f"{READY}, {len(kept)} services\n")
    sys.stdout.flush()
    threading.Event().wait()


def _start_services(hosts: list[str]) -> list[Any]:
    fake.LabDriver = LabDriver
    conf.CONF.set_override("compute_driver", "fake.LabDriver")
    os_vif.initialize()
    objects.Service.enable_min_version_cache()
    wanted: list[tuple[str, str, dict[str, str]]] = [
        ("nova-conductor", "conductor", {}),
        ("nova-scheduler", "scheduler", {}),
        *(("nova-compute", "compute", {"host": host, "topic_alt": "compute-alt"}) for host in hosts),
    ]
    started = []
    for binary, topic, options in wanted:
        one = service.Service.create(binary=binary, topic=topic, **options)
        one.start()
        started.append(one)
    host_mapping.discover_hosts(context.get_admin_context())
    return started


def _everybody_is_admin(placement: Application) -> Application:
    """Placement without Keystone: only Nova beside it knows where it listens."""

    def app(environ: Environ, start_response: Any) -> Any:
        return placement({**environ, "HTTP_X_ROLES": "admin,service"}, start_response)

    return app

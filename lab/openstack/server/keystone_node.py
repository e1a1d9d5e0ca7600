"""Keystone, in a process of its own. Its settings are in the folder OS_KEYSTONE_CONFIG_DIR."""

from __future__ import annotations

import json
import os

from keystone.wsgi.api import application

from lab.openstack.server.serving import PORTS_VARIABLE, server


def main() -> None:
    server(application, json.loads(os.environ[PORTS_VARIABLE])["keystone"]).serve_forever()


if __name__ == "__main__":
    main()

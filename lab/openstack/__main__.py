"""`python -m lab.openstack --data-dir DIR`: a real OpenStack until Ctrl-C, for trying things by hand."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from domain.pool import Arch
from lab.openstack import site
from lab.openstack.errors import OpenStackLabError
from lab.openstack.running import IMAGE_ID, RunningOpenStack, print_progress
from lab.stack.errors import StackError

CLOUD_FILE = "cloud.json"
OWNER_ONLY = 0o600


def main() -> int:
    """Serve until SIGINT or SIGTERM; 2 when the start is refused."""
    folder = _parser().parse_args().data_dir.resolve()
    if folder.exists() and any(folder.iterdir()):
        sys.stderr.write(f"openstack: {folder} is not empty: give a new folder, every run begins anew\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    # Before anything is started: a signal during the start must end it, not cut it short.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with RunningOpenStack.start(folder, print_progress) as running:
            sys.stdout.write(_where(running))
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except (OpenStackLabError, StackError) as error:
        sys.stderr.write(f"openstack: {error}\n")
        return 2
    return 0


def _where(running: RunningOpenStack) -> str:
    file = running.folder / CLOUD_FILE
    credential = {
        "auth_url": running.access.auth_url,
        "regions": [site.REGION],
        "images": {str(arch): IMAGE_ID for arch in Arch},
        "username": site.USER,
        "password": running.access.password,
        "project": site.PROJECT,
    }
    file.touch(OWNER_ONLY)
    file.write_text(json.dumps(credential, indent=2), encoding="utf-8")
    return (
        f"openstack: {running.access.auth_url}, credentials in {file}\n"
        f"openstack: notifications in {running.notifications}, logs in {running.folder / 'logs'}\n"
        "openstack: Ctrl-C ends it\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.openstack", description="Real Nova on loopback.")
    parser.add_argument("--data-dir", type=Path, required=True, help="a new or empty folder")
    return parser


if __name__ == "__main__":
    sys.exit(main())

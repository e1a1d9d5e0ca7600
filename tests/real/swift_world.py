"""OpenStack's Swift with its S3 API, as the distribution's package has it: four servers on one folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from clients.checkpoint import S3Credentials
from lab.stack.ports import LOOPBACK, any_free
from tests.clients.checkpoint.servers import SECRET, S3Server

# The system's own: the package is not in this environment.
PYTHON = "/usr/bin/python3"
SERVE = "import sys; from swift.common.wsgi import run_wsgi; sys.exit(run_wsgi(*sys.argv[1:], verbose=True))"
# One device for everything, kept once.
RINGS = """
import sys
from swift.common.ring import RingBuilder
for one in sys.argv[1:]:
    name, port = one.split(":")
    builder = RingBuilder(2, 1, 1)
    device = {"id": 0, "region": 1, "zone": 1, "weight": 1.0, "ip": "127.0.0.1", "device": "d1"}
    builder.add_dev(device | {"port": int(port)})
    builder.rebalance()
    builder.get_ring().save(f"{name}.ring.gz")
"""
COMMON = """\
[DEFAULT]
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
bind_ip = {host}
bind_port = {port}
workers = 0
user = {user}
"""
BEHIND = """\
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
PROXY = """\
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth copy proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
# Each ring has one device: a proxy that asks while it comes up must not leave it aside for a minute.
error_suppression_limit = 1000000
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = {host}:9
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_team_writer = {secret} .admin
[filter:copy]
use = egg:swift#copy
"""
HASHES = "[swift-hash]\nswift_hash_path_suffix = s\n[storage-policy:0]\nname = one\ndefault = yes\n"


class Swift(S3Server):
    """Proxy, account, container and object server. It refuses conditional writes as such, with 501."""

    is_conditional = False
    credentials = admin = S3Credentials("team:writer", SECRET)

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}
        for name in ("account", "container", "object", "proxy"):
            self._ports[name] = any_free(self._ports)
        super().__init__()
        (self.data / "devices/d1").mkdir(parents=True)
        (self.data / "swift.conf").write_text(HASHES)
        user = Path(self.data).owner()
        for name, port in self._ports.items():
            common = COMMON.format(folder=self.data, host=LOOPBACK, port=port, user=user)
            own = PROXY if name == "proxy" else BEHIND
            text = common + own.format(name=name, host=LOOPBACK, secret=SECRET)
            (self.data / f"{name}.conf").write_text(text)
        rings = [f"{name}:{port}" for name, port in self._ports.items() if name != "proxy"]
        subprocess.run([PYTHON, "-c", RINGS, *rings], cwd=self.data, check=True, timeout=60)

    def _port(self) -> int:
        return self._ports["proxy"]

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        return [
            [PYTHON, "-c", SERVE, str(self.data / f"{name}.conf"), f"{name}-server"] for name in self._ports
        ]

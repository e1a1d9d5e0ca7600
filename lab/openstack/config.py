"""The settings files of Keystone, Placement and Nova, for one run."""

from __future__ import annotations

import base64
import secrets
import uuid
from dataclasses import dataclass
from pathlib import Path

from lab.openstack.site import REGION
from lab.stack.ports import LOOPBACK

ADMIN, ADMIN_PROJECT = "admin", "admin"
PAGE_LIMIT = 100
"""Servers in a page of Nova's list: a tenth of the usual, so that a suite's servers fill several."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Ports on loopback."""

    keystone: int
    nova: int
    placement: int
    stub: int

    def url(self, name: str, path: str = "") -> str:
        return f"http://{LOOPBACK}:{getattr(self, name)}{path}"


@dataclass(frozen=True, slots=True)
class Databases:
    """Addresses for SQLAlchemy."""

    keystone: str
    placement: str
    nova_api: str
    nova_cell0: str
    nova_cell1: str


def write(folder: Path, at: Addresses, databases: Databases, password: str) -> None:
    """Write every settings file below `folder`, readable by their owner only."""
    for name, content in {
        "keystone/keystone.conf": _keystone(folder, databases),
        "placement/placement.conf": _placement(folder, databases),
        "nova/nova.conf": _nova(folder, at, databases, password),
        "nova/policy.yaml": _POLICY,
    }.items():
        path = folder / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(content, encoding="utf-8")
        path.chmod(0o600)
    # Nova refuses to start again on its old tables without the identity of its node.
    (folder / "nova" / "compute_id").write_text(str(uuid.uuid4()), encoding="ascii")
    for repository in ("fernet-keys", "credential-keys"):
        _make_keys(folder / "etc" / "keystone" / repository)


def _make_keys(repository: Path) -> None:
    """A primary key and the one after it, which Keystone's own command takes seconds to make."""
    repository.mkdir(mode=0o700)
    for number in ("0", "1"):
        key = repository / number
        key.write_bytes(base64.urlsafe_b64encode(secrets.token_bytes(32)))
        key.chmod(0o600)


def _keystone(folder: Path, databases: Databases) -> str:
    keys = folder / "etc" / "keystone"
    return f"""
[DEFAULT]
log_file={folder}/logs/keystone-service.log
[database]
connection={databases.keystone}
[token]
provider=fernet
[fernet_tokens]
key_repository={keys}/fernet-keys
[fernet_receipts]
key_repository={keys}/fernet-keys
[credential]
key_repository={keys}/credential-keys
[identity]
password_hash_rounds=4
[cache]
enabled=true
backend=oslo_cache.dict
"""


def _placement(folder: Path, databases: Databases) -> str:
    return f"""
[DEFAULT]
log_file={folder}/logs/placement.log
[api]
auth_strategy=noauth2
[placement_database]
connection={databases.placement}
sync_on_startup=true
"""


def _nova(folder: Path, at: Addresses, databases: Databases, password: str) -> str:
    credential = f"""auth_type=password
auth_url={at.url("keystone", "/v3")}
username={ADMIN}
password={password}
project_name={ADMIN_PROJECT}
user_domain_id=default
project_domain_id=default
region_name={REGION}"""
    return f"""
[DEFAULT]
host=control
my_ip={LOOPBACK}
log_file={folder}/logs/nova-service.log
state_path={folder}/nova
transport_url=fake://
default_log_levels=nova=INFO,nova.api.openstack.requestlog=WARNING,stevedore=CRITICAL,oslo=WARNING
# Without the periodic work of a long-lived cloud. The update of resources may only be rare:
# turned off, it would hold every build up.
update_resources_interval=-1
scheduler_instance_sync_interval=-1
heal_instance_info_cache_interval=-1
sync_power_state_interval=-1
running_deleted_instance_poll_interval=0
service_down_time=600
report_interval=60
max_concurrent_builds=50
reserved_host_memory_mb=0
cpu_allocation_ratio=1.0
ram_allocation_ratio=1.0
[api]
auth_strategy=keystone
max_limit={PAGE_LIMIT}
[api_database]
connection={databases.nova_api}
max_pool_size=60
[database]
connection={databases.nova_cell1}
max_pool_size=60
[keystone_authtoken]
www_authenticate_uri={at.url("keystone")}
# A token that was revoked is refused at once.
token_cache_time=-1
service_token_roles_required=true
{credential}
[service_user]
send_service_user_token=false
[placement]
auth_type=admin_token
token=admin
endpoint={at.url("placement")}
endpoint_override={at.url("placement")}
[glance]
api_servers={at.url("stub", "/image")}
[neutron]
endpoint_override={at.url("stub", "/network")}
{credential}
[oslo_policy]
policy_file={folder}/etc/nova/policy.yaml
[quota]
instances=5000
cores=100000
ram=800000000
[filter_scheduler]
enabled_filters=ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter
track_instance_changes=false
[notifications]
notification_format=versioned
[oslo_messaging_notifications]
driver=messagingv2
[oslo_concurrency]
lock_path={folder}/nova/locks
[vnc]
enabled=false
"""


_POLICY = """
# The orchestrator reads aggregates; Nova's default leaves them to administrators.
"os_compute_api:os-aggregates:index": "role:reader"
"""

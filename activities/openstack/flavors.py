"""The flavors of each region by name: Nova wants the id, which differs between regions."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from activities.openstack.session import Connections
from activities.ports import FlavorFacts, ProviderError, ProviderErrorKind
from domain.pool import Arch

ARCH_SPEC = "sco:arch"
SKU_SPEC = "sco:sku"


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor as the provider keeps it."""

    flavor_id: str
    facts: FlavorFacts

    @property
    def arch(self) -> Arch:
        """The architecture its extra specs name, x86_64 when they name none."""
        return Arch(self.facts.extra_specs.get(ARCH_SPEC, Arch.X86_64))


class FlavorBook:
    """Flavors as last read, kept until `forget`. Safe to share between threads."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = Lock()
        self._by_name: dict[str, dict[str, Flavor]] = {}

    def read(self, region: str) -> dict[str, Flavor]:
        """The flavors of `region` by name, asked for anew."""
        with self._connections.calling(region, "list flavors") as client:
            flavors = {
                each.name: Flavor(
                    each.id, FlavorFacts(each.name, each.vcpus, each.ram, dict(each.extra_specs or {}))
                )
                for each in client.connection.compute.flavors()
            }
        with self._lock:
            self._by_name[region] = flavors
        return flavors

    def known(self, region: str) -> dict[str, Flavor]:
        """The flavors of `region` by name, as last read."""
        with self._lock:
            known = self._by_name.get(region)
        return known if known is not None else self.read(region)

    def get(self, region: str, name: str) -> Flavor:
        """One flavor; one that is not known is looked for once more. BAD_REQUEST when there is none."""
        found = self.known(region).get(name) or self.read(region).get(name)
        if found is None:
            raise ProviderError(
                ProviderErrorKind.BAD_REQUEST,
                f"{region}: there is no flavor {name!r}: correct the pool's flavor, or create it",
            )
        return found

    def forget(self, region: str) -> None:
        """Read the flavors of `region` again when next needed."""
        with self._lock:
            self._by_name.pop(region, None)

"""The flavors of each region by name: Nova wants the id, which differs between regions."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from activities.openstack.session import Connections
from activities.ports import FlavorFacts, ProviderError, ProviderErrorKind
from domain.pool import Arch

ARCH_SPEC = "sco:arch"
SKU_SPEC = "sco:sku"
RESERVATION_NAME = "reservation:"


@dataclass(frozen=True, slots=True)
class Flavor:
    """A flavor as the provider keeps it."""

    flavor_id: str
    facts: FlavorFacts

    @property
    def arch(self) -> Arch:
        """The architecture its extra specs name, x86_64 when they name none."""
        return Arch(self.facts.extra_specs.get(ARCH_SPEC, Arch.X86_64))


@dataclass(frozen=True, slots=True)
class _Listed:
    """The flavors of one list: those of pools by name, and the reservations that have one of their own."""

    pools: dict[str, Flavor]
    reservations: frozenset[str]


class FlavorBook:
    """Flavors as last read, kept until `forget`. Safe to share between threads.

    Blazar makes a private flavor for each reservation of servers, whose id is that of the reservation. The
    project sees it while the reservation is active. It is listed like any other and belongs to no pool.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = Lock()
        self._listed: dict[str, _Listed] = {}

    def read(self, region: str) -> dict[str, Flavor]:
        """The flavors of `region` by name, asked for anew."""
        return self._read(region).pools

    def known(self, region: str) -> dict[str, Flavor]:
        """The flavors of `region` by name, as last read."""
        return self._known(region).pools

    def get(self, region: str, name: str) -> Flavor:
        """One flavor; one that is not known is looked for once more. BAD_REQUEST when there is none."""
        found = self.known(region).get(name) or self.read(region).get(name)
        if found is None:
            raise ProviderError(
                ProviderErrorKind.BAD_REQUEST,
                f"{region}: there is no flavor {name!r}: correct the pool's flavor, or create it",
            )
        return found

    def is_reserved(self, region: str, reservation_id: str) -> bool:
        """Whether a reservation has a flavor that we may use; if none is known it is looked for once more."""
        return any(reservation_id in read(region).reservations for read in (self._known, self._read))

    def forget(self, region: str) -> None:
        """Read the flavors of `region` again when next needed."""
        with self._lock:
            self._listed.pop(region, None)

    def _known(self, region: str) -> _Listed:
        with self._lock:
            known = self._listed.get(region)
        return known if known is not None else self._read(region)

    def _read(self, region: str) -> _Listed:
        with self._connections.calling(region, "list flavors") as client:
            flavors = [
                Flavor(each.id, FlavorFacts(each.name, each.vcpus, each.ram, dict(each.extra_specs or {})))
                for each in client.connection.compute.flavors()
            ]
        listed = _Listed(
            pools={each.facts.name: each for each in flavors if not _is_private(each)},
            reservations=frozenset(each.flavor_id for each in flavors if _is_private(each)),
        )
        with self._lock:
            self._listed[region] = listed
        return listed


def _is_private(flavor: Flavor) -> bool:
    """Whether Blazar made it. Its id alone does not tell; name and id together do."""
    return flavor.facts.name == f"{RESERVATION_NAME}{flavor.flavor_id}"

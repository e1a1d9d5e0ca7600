"""What the workflow of a model placement may ask of its hands: names, requests and answers."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from domain.model import Frozen

MODEL_PLACEMENT = "ModelPlacement"
PLACEMENT_RELEASED = "placement_released"
LOAD_MODEL = "load_model"
LOOK_AT_PLACEMENT = "look_at_model_placement"
RECORD_LOAD = "record_placement_load"
FAIL_PLACEMENT = "fail_model_placement"
UNKNOWN_PLACEMENT = "unknown_placement"
# Types of a failed load that say that the endpoint itself is down, and not the model or the request.
ENDPOINT_DOWN = frozenset({"unreachable", "timeout", "protocol"})


class LoadModelRequest(Frozen):
    """Load a model on a pool, named by owner and id. `cause` is `placement`, `warm_keep` or `request`."""

    tenant_id: str
    pool_id: str
    model: str
    vram_gb: int
    cause: str


class ModelLoaded(Frozen):
    """The serving port lists the model. `caused` is false where somebody else had loaded it or did."""

    caused: bool
    seconds: float = 0


class PlacementReleased(Frozen):
    """Somebody let go of the placement: what it has become is in the store."""

    why: str = ""


class ModelPlacementInput(Frozen):
    """One placement that needs its model loaded. `loaded` where an earlier run saw to that."""

    tenant_id: str
    placement_id: UUID
    pool_tenant_id: str
    pool_id: str
    model: str
    vram_gb: int
    cold_start_seconds: int = 0
    loaded: bool = False


class PlacementRequest(Frozen):
    """One placement of a tenant."""

    tenant_id: str
    placement_id: UUID


class LoadRecord(PlacementRequest):
    """The model of a placement is loaded; `caused` where it was loaded for this placement."""

    caused: bool


class PlacementFailure(PlacementRequest):
    """The model of a placement did not load: why, as one of the serving port's words and in a sentence."""

    kind: str
    problem: str


class PlacementLook(Frozen):
    """What a placement is now: `held` until `expires_at`, or `released` or `expired`.

    `problem` says why its model did not load, where that ended it.
    """

    state: str
    expires_at: datetime
    problem: str | None = None

    @property
    def held(self) -> bool:
        return self.state == "held"


class ModelPlacementEnded(Frozen):
    """How a placement ended: `released`, `expired`, or `failed` where its model did not load."""

    outcome: str
    loaded: bool

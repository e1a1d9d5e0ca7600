"""Why a pool was kept or left out, and why demand went unmet.

One enum serves database, metric label, API and screen, so that a reason reads the same everywhere.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why one pool is not (or not further) used for one claim, or for one model."""

    ARCH = "arch"
    GPU = "gpu"
    NVME = "nvme"
    NIC = "nic"
    BOUNDARY = "boundary"
    REGION = "region"
    CPU = "cpu"
    MEMORY = "memory"
    PRICE = "price"
    LATENCY = "latency"
    DISCOUNT = "discount"
    INTERRUPTION_RATE = "interruption_rate"
    CAPACITY = "capacity"
    QUOTA = "quota"
    STATE = "state"
    STALE = "stale"
    DEGRADED = "degraded"
    EXCLUDED = "excluded"
    PROBATION = "probation"
    BACKED_OFF = "backed_off"
    CAP = "cap"
    HALL_SPREAD = "hall_spread"
    OUTSCORED = "outscored"
    PURCHASE_MODEL = "purchase_model"


REASON_TEXT: dict[Reason, str] = {
    Reason.ARCH: "its CPU architecture is not the one asked for",
    Reason.GPU: "it lacks the GPU type or count that one unit needs",
    Reason.NVME: "it has no local NVMe",
    Reason.NIC: "its network card is slower than asked for",
    Reason.BOUNDARY: "its security boundary is not allowed",
    Reason.REGION: "its region is not allowed",
    Reason.CPU: "one instance has fewer vCPUs than the largest unit",
    Reason.MEMORY: "one instance has less memory than the largest unit",
    Reason.PRICE: "its price is above the maximum of the claim",
    Reason.LATENCY: "it would start later than the latency class allows",
    Reason.DISCOUNT: "it costs more than the discount limit allows, against the guaranteed rate",
    Reason.INTERRUPTION_RATE: "it is reclaimed more often than the contract tolerates",
    Reason.CAPACITY: "it has no free capacity left",
    Reason.QUOTA: "the region's quota has no headroom for it",
    Reason.STATE: "it is not Active",
    Reason.STALE: "its last report is older than the staleness window",
    Reason.DEGRADED: "its endpoint does not answer",
    Reason.EXCLUDED: "it is excluded after reclaims",
    Reason.PROBATION: "it is in probation and its share is used up",
    Reason.BACKED_OFF: "a launch failed there a short while ago",
    Reason.CAP: "the caps of the claim leave no room for another instance of it",
    Reason.HALL_SPREAD: "its hall already holds an even share of the claim",
    Reason.OUTSCORED: "better pools already covered the claim",
    Reason.PURCHASE_MODEL: "its purchase model does not serve this part of the claim",
}

# The same for a model, where a reason says something else of a serving pool than of a claim's instances.
MODEL_REASON_TEXT: dict[Reason, str] = {
    Reason.BOUNDARY: "its security boundary is less strict than the model requires",
    Reason.REGION: "its region is not among those that the model may run in",
    Reason.MEMORY: "it has less accelerator memory in all than the model needs",
    Reason.PRICE: "its price per hour is above the maximum",
    Reason.LATENCY: "loading the model and working off its queue take longer than the latency class allows",
    Reason.STATE: "it is not Active, or it has no serving endpoint",
    Reason.STALE: "its last utilization report is older than the staleness window",
    Reason.DEGRADED: "its endpoint failed its probes, or was reported down",
    Reason.EXCLUDED: "it is excluded after reclaims, or its hall is lost",
    Reason.PROBATION: "it is in probation after an exclusion",
    Reason.BACKED_OFF: "the model did not load there a short while ago",
    Reason.CAPACITY: "too little of its accelerator memory is free now, and the model is not on it",
    Reason.OUTSCORED: "another pool scored higher",
}


class ShortfallReason(StrEnum):
    """Why units of a claim were not placed."""

    NO_ELIGIBLE_POOL = "no_eligible_pool"
    POLICY_DENIED = "policy_denied"
    CAPS_UNSATISFIABLE = "caps_unsatisfiable"
    CAPACITY = "capacity"
    FLOOR_CAPACITY = "floor_capacity"
    LAUNCHES_FAILED = "launches_failed"


SHORTFALL_TEXT: dict[ShortfallReason, str] = {
    ShortfallReason.NO_ELIGIBLE_POOL: "no pool passes the filters for this part of the claim",
    ShortfallReason.POLICY_DENIED: "no pool satisfies the region and boundary that the claim requires",
    ShortfallReason.CAPS_UNSATISFIABLE: "too few pools or correlation groups are eligible to keep the caps",
    ShortfallReason.CAPACITY: "the eligible pools have too little free capacity",
    ShortfallReason.FLOOR_CAPACITY: "committed capacity is too small for the guaranteed floor",
    ShortfallReason.LAUNCHES_FAILED: "launches kept failing in the pools that were tried",
}

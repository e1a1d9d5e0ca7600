"""The promise of leases: they are looked at every quarter of an hour, and prolonged ahead of their end."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.leasing_calls import RENEW_LEASES, LeasesWatched, RenewLeasesRequest
    from domain.ids import provider_queue
    from domain.model import Frozen
    from workflows import terms


class LeaseWatchInput(Frozen):
    tenant_id: str
    region: str


@workflow.defn(name="LeaseWatch")
class LeaseWatch:
    """Looks once at the leases of a region and renews ours that end soon."""

    @workflow.run
    async def run(self, request: LeaseWatchInput) -> LeasesWatched:
        watched: LeasesWatched = await workflow.execute_activity(
            RENEW_LEASES,
            RenewLeasesRequest(tenant_id=request.tenant_id, region=request.region),
            task_queue=provider_queue(request.tenant_id, request.region),
            result_type=LeasesWatched,
            start_to_close_timeout=terms.LEASES_TIMEOUT,
            heartbeat_timeout=terms.HEARTBEAT,
            retry_policy=terms.LEASES_RETRY,
            summary=f"renew the leases of {request.region} that end soon",
        )
        workflow.set_current_details(_details(watched))
        return watched


def _details(watched: LeasesWatched) -> str:
    """Such as `renewed 2 of 9, next end 2026-01-31 10:00 UTC; problem: …`."""
    ends = watched.next_end_at
    said = [
        f"renewed {watched.renewed} of {watched.leases}"
        + (f", next end {ends:%Y-%m-%d %H:%M} UTC" if ends is not None else "")
    ]
    if watched.alarms:
        said.append(f"{watched.alarms} for a person to act on now")
    said += [f"problem: {problem}" for problem in watched.problems[: terms.PROBLEMS_SHOWN]]
    hidden = len(watched.problems[terms.PROBLEMS_SHOWN :])
    if hidden:
        said.append(f"and {hidden} more")
    return "; ".join(said)

"""A workflow's history as a short list of what was asked and answered, in order."""

from __future__ import annotations

import json

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.client import WorkflowHistory

LOCAL_ACTIVITY = "core_local_activity"
VERSION = "core_patch"


def chronicle(history: WorkflowHistory) -> list[str]:
    """`decide_placement`, `+acquire_region` when asked, `-acquire_region` when answered, and so on."""
    names: dict[int, str] = {}
    told: list[str] = []
    for event in history.events:
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                name = event.activity_task_scheduled_event_attributes.activity_type.name
                names[event.event_id] = name
                told.append(f"+{name}")
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                told.append(f"-{names[event.activity_task_completed_event_attributes.scheduled_event_id]}")
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                told.append(_marked(event))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                told.append("signal")
    return told


def asked(history: WorkflowHistory) -> list[ActivityTaskScheduledEventAttributes]:
    """Every activity that was scheduled, with its timeouts."""
    return [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


def _marked(event: HistoryEvent) -> str:
    """A local activity by its name, or which version of the workflow the run goes on with."""
    marker = event.marker_recorded_event_attributes
    assert marker.marker_name in (LOCAL_ACTIVITY, VERSION), marker.marker_name
    if marker.marker_name == VERSION:
        return f"version {json.loads(marker.details['patch-data'].payloads[0].data)['id']}"
    name: str = json.loads(marker.details["data"].payloads[0].data)["activity_type"]
    return name

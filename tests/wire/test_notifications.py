"""Notifications are read as Nova sends them, and any other bytes are refused with a reason."""

from __future__ import annotations

import json
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wire.messages import REGION, SENT, SUBJECT, message, plain, server, updated, versioned, wrapped
from wire.notifications import (
    MAX_BYTES,
    MAX_FAULT,
    EventKind,
    Notification,
    Refusal,
    RefusedAs,
    notifications_subject,
    parse_notification,
)

DATA_FOLDER = Path(__file__).parent / "data"


def recorded(name: str) -> dict[str, Any]:
    """A notification that Nova 34 sent, traceback left out."""
    sent: dict[str, Any] = json.loads((DATA_FOLDER / f"{name}.json").read_text())
    return sent


def read(envelope: object, subject: str = SUBJECT) -> Notification:
    found = parse_notification(subject, plain(envelope))
    assert isinstance(found, Notification), found
    return found


def refused(body: bytes, subject: str = SUBJECT) -> RefusedAs:
    found = parse_notification(subject, body)
    assert isinstance(found, Refusal), found
    assert len(found.detail) <= 200
    return found.reason


@pytest.mark.parametrize("pack", [plain, wrapped])
def test_a_notification_is_read_plain_and_wrapped(pack: Any) -> None:
    sent = message("instance.create.error", server(7), state="error", fault="No valid host was found.")
    assert parse_notification(SUBJECT, pack(sent)) == Notification(
        message_id=sent["message_id"],
        region=REGION,
        kind=EventKind.ERRORED,
        event_type="instance.create.error",
        server_id=server(7),
        emitted_at=SENT,
        state="error",
        fault="No valid host was found.",
        batch_key="b-1",
        tenant_id="platform",
        partition_id="k8s-eu-north",
        workload_id="orders",
    )


@pytest.mark.parametrize(
    ("event_type", "state", "kind"),
    [
        ("instance.create.start", "building", EventKind.OTHER),
        ("instance.create.end", "active", EventKind.CREATED),
        ("instance.create.error", "building", EventKind.ERRORED),
        ("instance.delete.start", "active", EventKind.OTHER),
        ("instance.delete.end", "deleted", EventKind.DELETED),
        ("instance.soft_delete.end", "soft-delete", EventKind.DELETED),
        ("instance.power_off.end", "stopped", EventKind.STOPPED),
        ("instance.power_on.end", "active", EventKind.OTHER),
        ("instance.reboot.error", "active", EventKind.OTHER),
        ("instance.reboot.error", "error", EventKind.ERRORED),
        ("instance.no_such.end", "active", EventKind.OTHER),
    ],
)
def test_what_an_action_means(event_type: str, state: str, kind: EventKind) -> None:
    assert read(message(event_type, state=state)).kind is kind


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("building", "error", EventKind.ERRORED),
        ("error", "error", EventKind.OTHER),
        ("active", "stopped", EventKind.STOPPED),
        ("active", "deleted", EventKind.DELETED),
        ("building", "active", EventKind.OTHER),
        (None, None, EventKind.OTHER),
    ],
)
def test_an_update_means_what_changed(old: str | None, new: str | None, kind: EventKind) -> None:
    assert read(updated(old, new)).kind is kind


def test_a_task_that_failed_names_its_server_and_reason() -> None:
    reason = versioned("ExceptionPayload", {"exception_message": "No valid host was found."})
    sent = message("compute_task.build_instances.error") | {
        "payload": versioned(
            "ComputeTaskPayload", {"instance_uuid": server(3), "state": "error", "reason": reason}
        )
    }
    found = read(sent)
    assert (found.kind, found.server_id, found.batch_key) == (EventKind.ERRORED, server(3), None)
    assert found.fault == "No valid host was found."


def test_times_come_out_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    for text in ("2030-01-01 12:00:00.250000", "2030-01-01T12:00:00.250Z", SENT.astimezone(east).isoformat()):
        found = read(message() | {"timestamp": text})
        assert found.emitted_at == SENT
        assert found.emitted_at.tzinfo is UTC


def test_text_is_cut_and_cleaned_for_the_database() -> None:
    found = read(message("instance.create.error", fault="a\x00b\x1b[31m" + "x" * 5000))
    assert found.fault is not None
    assert found.fault.startswith("a b [31mxxx")
    assert len(found.fault) == MAX_FAULT


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", RefusedAs.NOT_JSON),
        (b"\xff\x00", RefusedAs.NOT_JSON),
        (b'{"a":' * 100_000, RefusedAs.TOO_LARGE),
        (b'{"a":' * 10_000, RefusedAs.NOT_JSON),
        (b'{"event_type": "\\ud800"}', RefusedAs.NOT_JSON),
        (b" " * (MAX_BYTES + 1), RefusedAs.TOO_LARGE),
        (b"[]", RefusedAs.ENVELOPE),
        (b"null", RefusedAs.ENVELOPE),
        (b'{"oslo.message": "no json"}', RefusedAs.NOT_JSON),
        (b'{"oslo.message": "3"}', RefusedAs.ENVELOPE),
        (b'{"oslo.message": {"event_type": "instance.delete.end"}}', RefusedAs.ENVELOPE),
        (wrapped({"oslo.message": json.dumps(message())}), RefusedAs.ENVELOPE),
        (plain(message("service.update")), RefusedAs.UNRELATED),
        (plain(message() | {"event_type": 7}), RefusedAs.ENVELOPE),
        (plain(message() | {"payload": None}), RefusedAs.PAYLOAD),
        (plain(message() | {"payload": {"nova_object.data": []}}), RefusedAs.PAYLOAD),
        (plain(message() | {"message_id": None}), RefusedAs.MESSAGE_ID),
        (plain(message() | {"message_id": "a" * 65}), RefusedAs.MESSAGE_ID),
        (plain(message(uuid=None)), RefusedAs.SERVER_ID),
        (plain(message(uuid="'; --")), RefusedAs.SERVER_ID),
        (plain(message() | {"timestamp": "yesterday"}), RefusedAs.TIME),
        (plain(message() | {"timestamp": 1_900_000_000}), RefusedAs.TIME),
        (plain(message() | {"timestamp": "9999-12-31T23:59:59-12:00"}), RefusedAs.TIME),
        (plain(message() | {"timestamp": "0001-01-01T00:00:00+12:00"}), RefusedAs.TIME),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value[:20]),
)
def test_what_is_no_notification_is_refused(body: bytes, reason: RefusedAs) -> None:
    assert refused(body) is reason


@pytest.mark.parametrize(
    "subject",
    ["", "sco.provider.notifications", "sco.provider.a.b.notifications", "sco.provider.A b.notifications"],
)
def test_only_the_subject_of_a_region_is_read(subject: str) -> None:
    assert refused(plain(message()), subject) is RefusedAs.SUBJECT


def test_a_subject_tells_its_region() -> None:
    assert read(message(), notifications_subject("eu-south-2")).region == "eu-south-2"


@pytest.mark.parametrize(
    ("name", "kind", "state"),
    [
        ("create-end", EventKind.CREATED, "active"),
        ("create-error", EventKind.ERRORED, "building"),
        ("update-error", EventKind.ERRORED, "error"),
        ("build-instances-error", EventKind.ERRORED, "error"),
        ("power-off-end", EventKind.STOPPED, "stopped"),
        ("update-stopped", EventKind.STOPPED, "stopped"),
        ("delete-start", EventKind.OTHER, "stopped"),
        ("delete-end", EventKind.DELETED, "deleted"),
        ("update-deleted", EventKind.DELETED, "deleted"),
    ],
)
@pytest.mark.parametrize("pack", [plain, wrapped])
def test_what_a_real_nova_sent_is_read(name: str, kind: EventKind, state: str, pack: Any) -> None:
    sent = recorded(name)
    found = parse_notification(SUBJECT, pack(sent))
    assert isinstance(found, Notification), found
    assert (found.kind, found.state, found.event_type) == (kind, state, sent["event_type"])
    assert found.message_id == sent["message_id"]
    assert found.emitted_at.isoformat() == sent["timestamp"].replace(" ", "T") + "+00:00"
    if name != "build-instances-error":
        assert found.batch_key == "b-0c5de2b1e0d44f6f9f3e6f0e7a7f5b11"
        assert (found.tenant_id, found.partition_id, found.workload_id) == (
            "platform",
            "k8s-eu-north",
            "orders",
        )


def test_real_faults_are_told_in_nova_s_words() -> None:
    assert read(recorded("build-instances-error")).fault == (
        "No valid host was found. There are not enough hosts available."
    )
    assert "aborted" in (read(recorded("create-error")).fault or "")
    assert read(recorded("update-error")).server_id == read(recorded("build-instances-error")).server_id


def test_what_a_real_scheduler_sent_is_unrelated() -> None:
    assert refused(plain(recorded("select-destinations"))) is RefusedAs.UNRELATED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ("message_id", "event_type", "payload", "timestamp", "oslo.message", "priority")
DATA = ("uuid", "instance_uuid", "state", "metadata", "fault", "reason", "state_update")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A notification with some of its fields replaced by anything, and perhaps some bytes changed."""
    kinds = ["instance.update", "instance.delete.end", "compute_task.build_instances.error", "x.y"]
    envelope = draw(st.sampled_from([recorded("update-error"), recorded("build-instances-error")]))
    envelope["event_type"] = draw(st.sampled_from(kinds))
    for name in draw(st.lists(st.sampled_from(DATA), max_size=4)):
        envelope["payload"]["nova_object.data"][name] = draw(JSON)
    for name in draw(st.lists(st.sampled_from(FIELDS), max_size=1)):
        envelope[name] = draw(JSON)
    body = bytearray(draw(st.sampled_from([plain, wrapped]))(envelope))
    for place in draw(st.lists(st.integers(0, len(body) - 1), max_size=2)):
        body[place] = draw(st.integers(0, 255))
    return bytes(body)


@given(subject=st.just(SUBJECT) | st.text(max_size=40), body=st.binary(max_size=300) | damaged())
@settings(max_examples=600, deadline=None)
@example(subject="sco.provider.\udcff.notifications", body=b"{}")
def test_any_bytes_are_read_or_refused(subject: str, body: bytes) -> None:
    found = parse_notification(subject, body)
    if isinstance(found, Refusal):
        assert found.reason is not RefusedAs.STORE
        return
    assert found.emitted_at.tzinfo is UTC
    for text in (found.server_id, found.message_id, found.state, found.fault, found.batch_key):
        assert text is None or ("\x00" not in text and text.encode() and len(text) <= MAX_FAULT)

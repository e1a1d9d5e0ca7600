"""What each failure of the client libraries means, without a wire: statuses, words, waits, doubt."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import requests
from keystoneauth1 import exceptions as keystone
from keystoneauth1.session import Session
from openstack.exceptions import raise_from_response
from urllib3.exceptions import MaxRetryError, NewConnectionError, ProtocolError

from activities.errors import kind_of_fault
from activities.openstack.errors import (
    MAX_RETRY_AFTER_SECONDS,
    MAX_SAID_LENGTH,
    provider_error,
)
from activities.ports import ProviderError, ProviderErrorKind

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
CREATE_URL = "http://cloud/eu-north/compute/v2.1/servers"
AUTH_URL = "http://cloud/identity/v3/auth/tokens"


def prepared(method: str = "POST", url: str = CREATE_URL) -> requests.PreparedRequest:
    return requests.Request(method, url).prepare()


def response(status: int, body: object = None, headers: dict[str, str] | None = None) -> requests.Response:
    answer = requests.Response()
    answer.status_code = status
    answer.request = prepared()
    answer.headers["content-type"] = "application/json"
    answer.headers["x-openstack-request-id"] = "req-7"
    answer.headers.update(headers or {})
    answer._content = orjson.dumps(body) if body is not None else b""
    return answer


def mapped(error: BaseException, *, creates: bool = True) -> ProviderError:
    return provider_error(error, region="eu-north", attempted="create 3 servers", creates=creates, now=NOW)


def from_sdk(answer: requests.Response) -> BaseException:
    try:
        raise_from_response(answer)
    except Exception as error:
        return error
    raise AssertionError("no error")


def from_keystone(answer: requests.Response) -> BaseException:
    return keystone.from_response(answer, "POST", CREATE_URL)


def wrapped(cause: requests.RequestException) -> BaseException:
    """The failure of a connection as keystoneauth raises it: the cause is only in the context."""

    class Failing(requests.Session):
        def request(self, *_: Any, **__: Any) -> requests.Response:
            raise cause

    try:
        Session(session=Failing()).post(CREATE_URL, authenticated=False)
    except keystone.ClientException as error:
        return error
    raise AssertionError("no error")


@pytest.mark.parametrize("raised", [from_sdk, from_keystone])
@pytest.mark.parametrize(
    ("status", "words", "kind", "in_doubt"),
    [
        (400, "Invalid input", "bad_request", False),
        (401, "The request you have made requires authentication.", "unavailable", False),
        (403, "Quota exceeded for cores: Requested 8", "quota", False),
        (403, "Policy doesn't allow os_compute_api:servers:create", "bad_request", False),
        (404, "Instance could not be found.", "not_found", False),
        (406, "Version 2.999 is not supported", "unknown", False),
        (408, "Too slow", "unavailable", False),
        (409, "Cannot 'stop' instance", "conflict", False),
        (413, "Over limit", "throttled", False),
        (429, "Over limit", "throttled", False),
        (500, "Unexpected API Error", "unavailable", True),
        (502, "Bad gateway", "unavailable", True),
        (503, "Unavailable", "unavailable", True),
        (504, "Gateway timeout", "unavailable", True),
    ],
)
def test_a_status_has_one_meaning_whichever_library_raised_it(
    raised: Callable[[requests.Response], BaseException],
    status: int,
    words: str,
    kind: str,
    in_doubt: bool,
) -> None:
    error = mapped(raised(response(status, {"computeFault": {"code": status, "message": words}})))
    assert (error.kind, error.in_doubt) == (kind, in_doubt)
    assert str(error) == f"eu-north: could not create 3 servers: HTTP {status}, {words} (request req-7)"


def test_only_a_create_can_be_in_doubt() -> None:
    answer = response(503, {"computeFault": {"message": "later"}})
    assert mapped(from_sdk(answer), creates=False).in_doubt is False
    answer.request = prepared("GET")
    assert mapped(from_sdk(answer)).in_doubt is False
    answer.request = prepared("POST", AUTH_URL)
    assert mapped(from_sdk(answer)).in_doubt is False


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ProviderErrorKind.UNAVAILABLE),
        (401, ProviderErrorKind.UNAVAILABLE),
        (403, ProviderErrorKind.UNAVAILABLE),
        (404, ProviderErrorKind.UNAVAILABLE),
        (409, ProviderErrorKind.UNAVAILABLE),
        (429, ProviderErrorKind.THROTTLED),
        (503, ProviderErrorKind.UNAVAILABLE),
    ],
)
def test_a_refused_login_is_no_answer_to_what_was_attempted(status: int, kind: ProviderErrorKind) -> None:
    """Keystone answers 404 for an unknown application credential: no server is gone for that."""
    answer = response(status, {"error": {"code": status, "message": "Quota or not"}})
    answer.request = prepared("POST", AUTH_URL)
    error = mapped(from_keystone(answer))
    assert (error.kind, error.in_doubt) == (kind, False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"forbidden": {"code": 403, "message": "nova says"}}, "nova says"),
        ({"error": {"code": 403, "message": "keystone says", "title": "Forbidden"}}, "keystone says"),
        ({"error_code": 403, "error_message": "blazar says", "error_name": "X"}, "blazar says"),
        ({"errors": [{"status": 403, "title": "Forbidden", "detail": "placement says"}]}, "placement says"),
        ({"error": "the rates API says"}, "the rates API says"),
        ({}, "nothing more was said"),
        ([], "nothing more was said"),
        (None, "nothing more was said"),
    ],
)
def test_the_providers_own_words_are_kept(body: object, words: str) -> None:
    assert f"HTTP 403, {words} (request req-7)" in str(mapped(from_sdk(response(403, body))))


def test_long_words_are_cut() -> None:
    error = mapped(from_sdk(response(400, {"badRequest": {"message": "x" * 10_000}})))
    assert len(str(error)) < MAX_SAID_LENGTH + 100


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "Sun, 29 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0.0),
        (
            {"Retry-After": "Sun, 29 Nov 2026 09:00:30 GMT", "Date": "Sun, 29 Nov 2026 09:00:20 GMT"},
            10.0,
        ),
        ({"Retry-After": "9" * 400}, MAX_RETRY_AFTER_SECONDS),
        ({"Retry-After": "Sun, 29 Nov 2099 12:00:30 GMT"}, MAX_RETRY_AFTER_SECONDS),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": ""}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [413, 429, 503])
def test_the_wait_that_the_provider_asks_for(
    status: int, headers: dict[str, str], seconds: float | None
) -> None:
    assert mapped(from_sdk(response(status, {}, headers))).retry_after_seconds == seconds


def refused() -> requests.ConnectionError:
    reason = NewConnectionError(None, "refused")  # type: ignore[arg-type]
    return requests.ConnectionError(MaxRetryError(None, "/", reason), request=prepared())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "in_doubt"),
    [
        (refused(), False),
        (requests.ConnectTimeout("slow", request=prepared()), False),
        (requests.exceptions.SSLError("certificate verify failed", request=prepared()), False),
        (requests.exceptions.SSLError("bad record mac", request=prepared()), True),
        (requests.ReadTimeout("silence", request=prepared()), True),
        (requests.ConnectionError(ProtocolError("aborted"), request=prepared()), True),
        (requests.exceptions.ChunkedEncodingError("cut", request=prepared()), True),
        (requests.ReadTimeout("silence", request=prepared("POST", AUTH_URL)), False),
        (requests.ReadTimeout("silence", request=prepared("GET")), False),
        (requests.ReadTimeout("silence"), True),
    ],
)
def test_a_call_without_an_answer_is_in_doubt_when_it_may_have_arrived(
    cause: requests.RequestException, in_doubt: bool
) -> None:
    for error in (cause, wrapped(cause)):
        found = mapped(error)
        assert (found.kind, found.in_doubt) == (ProviderErrorKind.UNAVAILABLE, in_doubt)
    assert mapped(wrapped(cause), creates=False).in_doubt is False


def test_a_real_refused_connection_was_never_sent() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/servers"
        with pytest.raises(keystone.ConnectFailure) as caught:
            Session().post(url, authenticated=False)
    assert mapped(caught.value).in_doubt is False


def test_a_failure_that_the_caller_was_handling_is_not_this_one() -> None:
    """A list after a refused create must not be called refused, only because both failed."""
    refusal = from_sdk(response(403, {"forbidden": {"message": "Quota exceeded"}}))

    def list_after_refusal() -> None:
        try:
            raise mapped(refusal) from refusal
        except ProviderError:
            response(200, {}).json()["servers"]

    with pytest.raises(KeyError) as caught:
        list_after_refusal()
    assert mapped(caught.value).kind is ProviderErrorKind.UNKNOWN


def test_an_answer_that_is_not_understood_leaves_a_create_in_doubt() -> None:
    found = mapped(KeyError("server"))
    assert (found.kind, found.in_doubt) == (ProviderErrorKind.UNKNOWN, True)


def test_a_catalog_without_the_service_is_unavailable() -> None:
    found = mapped(keystone.EndpointNotFound("no endpoint"), creates=False)
    assert (found.kind, found.in_doubt) == (ProviderErrorKind.UNAVAILABLE, False)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No valid host was found. There are not enough hosts available.", "no_valid_host"),
        ("Exceeded maximum number of retries. Exhausted all hosts available for retrying", "no_valid_host"),
        ("Build of instance x aborted: Quota exceeded, too many ports", "quota"),
        ("Build of instance x aborted: Disk is broken", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_fault_of_a_server_in_error(text: str, kind: str) -> None:
    assert kind_of_fault(text) == kind

"""Who `sco` is to the server: a bearer token that is given, kept in a file, or fetched from an issuer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote_plus

import httpx2

from clients.cli.failures import Failure, unreachable, usage
from clients.cli.settings import is_loopback
from domain.intake.words import clean

TOKEN = "SCO_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE = "SCO_TOKEN_FILE"  # noqa: S105
CLIENT_ID = "SCO_CLIENT_ID"
CLIENT_SECRET_FILE = "SCO_CLIENT_SECRET_FILE"  # noqa: S105
TOKEN_URL = "SCO_TOKEN_URL"  # noqa: S105
CLIENT = (CLIENT_ID, CLIENT_SECRET_FILE, TOKEN_URL)
HOW = (
    f"set {TOKEN_FILE} to a file with a token, or {TOKEN} to the token itself,"
    f" or {', '.join(CLIENT[:2])} and {TOKEN_URL} to fetch one; a laboratory has these in .lab/sco.env"
)
MAX_SECRET_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 256 * 1024
# A token is fetched anew this long before it ends, so that it does not end on its way.
MARGIN_SECONDS = 30.0
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_MAX_SHOWN = 300


class Credential(Protocol):
    """`where` says in words what a token came from."""

    @property
    def where(self) -> str: ...

    def token(self) -> str:
        """The token to send now; raises `Failure`."""
        ...


class Given(NamedTuple):
    """One token for the whole run."""

    where: str
    text: str

    def token(self) -> str:
        return _token(self.text, self.where)


class Kept(NamedTuple):
    """A file that somebody else keeps fresh: read for each request."""

    path: Path

    @property
    def where(self) -> str:
        return f"the file {self.path} ({TOKEN_FILE})"

    def token(self) -> str:
        return _token(_read(self.path, TOKEN_FILE), self.where)


class Fetched:
    """Client credentials (RFC 6749, section 4.4). The token is kept in memory until it is about to end."""

    def __init__(
        self,
        client_id: str,
        secret_file: Path,
        url: str,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._client_id = client_id
        self._secret_file = secret_file
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._monotonic = monotonic
        self._token = ""
        self._until = float("-inf")

    @property
    def where(self) -> str:
        return f"{self._url} ({TOKEN_URL}) for the client {self._client_id}"

    def token(self) -> str:
        now = self._monotonic()
        if now >= self._until:
            self._token, seconds = self._fetch()
            self._until = now + max(seconds - MARGIN_SECONDS, 0.0)
        return self._token

    def _fetch(self) -> tuple[str, float]:
        secret = _read(self._secret_file, CLIENT_SECRET_FILE)
        auth = httpx2.BasicAuth(quote_plus(self._client_id), quote_plus(secret))
        try:
            with httpx2.Client(timeout=self._timeout_seconds, trust_env=not is_loopback(self._url)) as http:
                answer = http.post(self._url, data={"grant_type": "client_credentials"}, auth=auth)
        except (httpx2.HTTPError, OSError) as error:
            raise unreachable(
                f"no token from {self._url}: {clean(str(error) or type(error).__name__, _MAX_SHOWN)}",
                f"is the issuer running, and is the address right? it is in {TOKEN_URL}",
            ) from None
        return self._told(answer)

    def _told(self, answer: httpx2.Response) -> tuple[str, float]:
        said = _document(answer)
        if not answer.is_success:
            error = clean(str(said.get("error_description") or said.get("error") or "no reason"), _MAX_SHOWN)
            failure = unreachable if answer.is_server_error else usage
            raise failure(
                f"{self._url} gives the client {clean(self._client_id)} no token"
                f" (status {answer.status_code}): {error}",
                f"is it the client of {CLIENT_ID}, and its secret in the file of {CLIENT_SECRET_FILE}?",
            )
        token, seconds = said.get("access_token"), said.get("expires_in", 0)
        if not isinstance(token, str) or isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise unreachable(f"{self._url} answered something that is no token", f"look at {TOKEN_URL}")
        return _token(token, self.where), float(seconds)


def find_credential(
    environment: Mapping[str, str],
    server: str,
    *,
    timeout_seconds: float,
    monotonic: Callable[[], float],
) -> Credential | None:
    """What the environment says; None where it says nothing. Two answers are a usage failure."""
    said = {name: environment[name] for name in (TOKEN, TOKEN_FILE, *CLIENT) if environment.get(name)}
    if not said:
        return None
    if len({_way(name) for name in said}) > 1:
        raise usage(f"{' and '.join(said)} are set, and it is not clear which counts", f"unset one: {HOW}")
    _require_private(server, "the server")
    if TOKEN in said:
        return Given(f"the variable {TOKEN}", said[TOKEN].strip())
    if TOKEN_FILE in said:
        return Kept(Path(said[TOKEN_FILE]))
    missing = [name for name in CLIENT if name not in said]
    if missing:
        raise usage(f"{' and '.join(said)} is set, but not {' and '.join(missing)}", HOW)
    url = _checked_url(said[TOKEN_URL])
    return Fetched(
        said[CLIENT_ID],
        Path(said[CLIENT_SECRET_FILE]),
        url,
        timeout_seconds=timeout_seconds,
        monotonic=monotonic,
    )


def not_let_in(failure: Failure, credential: Credential | None) -> Failure:
    """A refusal for want of a good token, with what to set."""
    hint = (
        HOW if credential is None else f"the token came from {credential.where}: is it over, or of another?"
    )
    return Failure(failure.code, failure.problem, (*failure.hints, hint))


def _way(name: str) -> str:
    return TOKEN_URL if name in CLIENT else name


def _read(path: Path, variable: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SECRET_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise usage(f"the file {path} of {variable} cannot be read: {reason}") from None


def _token(text: str, where: str) -> str:
    if _VISIBLE.fullmatch(text):
        return text
    what = "nothing" if not text else "something with spaces or letters that no token has"
    raise usage(f"{where} holds {what}, where a token is expected", HOW)


def _document(answer: httpx2.Response) -> dict[str, Any]:
    try:
        document = answer.json() if len(answer.content) <= MAX_ANSWER_BYTES else None
    except (ValueError, RecursionError):
        document = None
    return document if isinstance(document, dict) else {}


def _checked_url(text: str) -> str:
    try:
        url = httpx2.URL(text.strip())
    except httpx2.InvalidURL:
        raise usage(f"{TOKEN_URL} is {text!r}, which is no address") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise usage(f"{TOKEN_URL} is {text!r}, which is no https address")
    _require_private(str(url), TOKEN_URL)
    return str(url)


def _require_private(url: str, what: str) -> None:
    """Whoever listens on the way could use what we send."""
    if httpx2.URL(url).scheme != "https" and not is_loopback(url):
        raise usage(f"{what} is {url}: sco sends no token or secret in plain text", "use its https address")

"""OpenBao, as every adapter asks it: signed in with a token of our own, in threads, with short waits.

hvac blocks, so it runs in threads of its own, a few: a service that hangs holds up these threads and
nobody else, and who waits is told after `answer_seconds`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Annotated, NamedTuple, Self, TypeVar

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, VaultError
from pydantic import ConfigDict, Field, SecretStr, model_validator

from domain.model import Frozen

THREADS = 4
# How long a thread waits for each answer; who asked has been told by then.
THREAD_SECONDS = 2
# Half of a token's life is left when it is replaced.
RENEW_SHARE = 0.5
Text = Annotated[str, Field(min_length=1, max_length=255)]
PathText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*$", max_length=255)]
T = TypeVar("T")


class OpenBaoAway(Exception):
    """No answer can be had now. The text holds no secret."""


class NotThere(OpenBaoAway):
    """OpenBao answers, and has nothing at this path."""


class OpenBaoSettings(Frozen):
    """Where OpenBao is, or a service that speaks its API, and one way to sign in.

    That is AppRole, `role_id` and `secret_id`, or the token in `token_file`, which an agent keeps fresh.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(pattern=r"^https://[^\s@]+$|^http://(?:127\.0\.0\.1|localhost)(?::[0-9]+)?$")]
    role_id: Text | None = None
    secret_id: SecretStr | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    answer_seconds: Annotated[float, Field(gt=0, le=2)] = 1.5

    @model_validator(mode="after")
    def _has_one_way_in(self) -> Self:
        by_role = (self.role_id is not None, self.secret_id is not None)
        if (any(by_role) and not all(by_role)) or all(by_role) == (self.token_file is not None):
            raise ValueError(
                "the sign-in is incomplete or given twice: give either role_id and secret_id, or token_file"
            )
        return self


class _SignedIn(NamedTuple):
    """A token of ours, until when it is used; None where it does not end."""

    token: str
    until: datetime | None


class OpenBao:
    """Asks OpenBao for one adapter. Close it to end its threads."""

    def __init__(self, settings: OpenBaoSettings, *, now: Callable[[], datetime], threads: str) -> None:
        """`threads` is what the threads are called."""
        self._settings = settings
        self._now = now
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=threads)
        self._signed_in: _SignedIn | None = None
        self._signing_in = Lock()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def __repr__(self) -> str:
        return f"OpenBao({self._settings.url!r})"

    async def ask(self, call: Callable[[hvac.Client], T]) -> T:
        """What one call answers, within `answer_seconds`. Raises `OpenBaoAway` and `NotThere`."""
        answering = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, call)
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                return await answering
        except TimeoutError:
            raise OpenBaoAway(f"it did not answer within {self._settings.answer_seconds:g} s") from None

    def client(self, token: str | None = None) -> hvac.Client:
        """A client with a token; one of ours, signing in where that is needed, when none is given."""
        return self._client(self._token() if token is None else token)

    def _ask(self, call: Callable[[hvac.Client], T]) -> T:
        """One call. A token that ended early is replaced once."""
        try:
            try:
                return call(self.client())
            except Forbidden:
                if self._settings.token_file is None:
                    self._signed_in = None
                return call(self.client())
        except InvalidPath:
            raise NotThere("it has nothing there") from None
        # The texts of these hold paths and what the service said, and hvac's hold request bodies in none.
        except (VaultError, requests.RequestException, OSError, ValueError, KeyError) as error:
            raise OpenBaoAway(f"it cannot be asked ({type(error).__name__})") from None

    def _token(self) -> str:
        if self._settings.token_file is not None:
            return self._settings.token_file.read_text(encoding="utf-8").strip()
        with self._signing_in:
            known = self._signed_in
            if known is None or (known.until is not None and self._now() >= known.until):
                known = self._signed_in = self._sign_in()
            return known.token

    def _sign_in(self) -> _SignedIn:
        role_id, secret_id = self._settings.role_id, self._settings.secret_id
        assert role_id is not None, "settings have one way in"
        assert secret_id is not None, "settings have one way in"
        # An empty token: hvac reads one from the environment or the home folder where it is given none.
        signing_in = self._client("").auth.approle
        answer = signing_in.login(role_id, secret_id.get_secret_value(), use_token=False)
        auth = answer["auth"]
        life = float(auth["lease_duration"])
        until = self._now() + timedelta(seconds=life * RENEW_SHARE) if life else None
        return _SignedIn(auth["client_token"], until)

    def _client(self, token: str) -> hvac.Client:
        session = requests.Session()
        session.trust_env = False
        return hvac.Client(
            url=self._settings.url,
            token=token,
            verify=str(self._settings.ca_file) if self._settings.ca_file is not None else True,
            timeout=THREAD_SECONDS,
            allow_redirects=False,
            session=session,
        )

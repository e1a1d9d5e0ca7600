"""The front door of model routers and pool agents: gRPC."""

from __future__ import annotations

import os

# The library's own lines have another form than ours, and callers can make it write them. It looks at this
# when it is loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

"""The committed description of the REST API: `python -m api.openapi PATH` writes it from the code."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api.app import routes

USAGE = "usage: python -m api.openapi PATH"


def document() -> str:
    """The OpenAPI document as it is committed: sorted, with a newline at its end."""
    return json.dumps(routes().openapi(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(USAGE, file=sys.stderr)
        return 2
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(), encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

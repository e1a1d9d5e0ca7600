"""The services beside Nova: as much of images and networks as a server without a port needs.

Images are those of LAB_IMAGES, a JSON list of ids. The provider's rates are the files of the folder
LAB_RATES, which are read at each request.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.openstack.server.serving import Environ

IMAGES_VARIABLE, RATES_VARIABLE = "LAB_IMAGES", "LAB_RATES"
UNLIMITED = -1


def application(environ: Environ, start_response: Any) -> Iterable[bytes]:
    path, base = environ["PATH_INFO"].rstrip("/"), f"http://{environ['HTTP_HOST']}"
    found = _image_service(path, base) or _network_service(path, base) or _rates(path)
    kind, content = "application/json", json.dumps(found[1] if found is not None else None).encode()
    status = found[0] if found is not None else "404 Not Found"
    if found is None:
        # The image service tells its errors as a page; its client takes JSON for something else.
        kind, content = "text/html", b"<html><body><h1>404 Not Found</h1></body></html>"
    start_response(status, [("Content-Type", kind), ("Content-Length", str(len(content)))])
    return [content]


def _image_service(path: str, base: str) -> tuple[str, Any] | None:
    if path in ("/image", "/image/versions"):
        link = {"rel": "self", "href": f"{base}/image/v2/"}
        return "300 Multiple Choices", {"versions": [{"id": "v2.16", "status": "CURRENT", "links": [link]}]}
    if path == "/image/v2/schemas/image":
        properties: dict[str, Any] = {key: {} for key in _image("")}
        return "200 OK", {
            "name": "image",
            "properties": properties,
            "additionalProperties": {"type": "string"},
        }
    wanted = path.removeprefix("/image/v2/images/")
    if wanted in json.loads(os.environ[IMAGES_VARIABLE]):
        return "200 OK", _image(wanted)
    return None


def _image(image_id: str) -> dict[str, Any]:
    moment = "2026-01-01T00:00:00Z"
    return {
        "id": image_id,
        "name": "node",
        "status": "active",
        "visibility": "public",
        "container_format": "bare",
        "disk_format": "raw",
        "size": 1024,
        "min_disk": 0,
        "min_ram": 0,
        "tags": [],
        "checksum": "0" * 32,
        "owner": "laboratory",
        "protected": False,
        "os_hidden": False,
        "created_at": moment,
        "updated_at": moment,
        "file": f"/v2/images/{image_id}/file",
        "schema": "/v2/schemas/image",
    }


def _network_service(path: str, base: str) -> tuple[str, Any] | None:
    if path == "/network":
        link = {"rel": "self", "href": f"{base}/network/v2.0/"}
        return "200 OK", {"versions": [{"id": "v2.0", "status": "CURRENT", "links": [link]}]}
    if path == "/network/v2.0/extensions":
        return "200 OK", {"extensions": []}
    if path.startswith("/network/v2.0/quotas/"):
        kinds = ("port", "network", "subnet", "router", "floatingip", "security_group", "security_group_rule")
        return "200 OK", {"quota": dict.fromkeys(kinds, UNLIMITED)}
    listed = re.fullmatch(r"/network/v2\.0/([a-z-]+)", path)
    return ("200 OK", {listed[1].replace("-", "_"): []}) if listed else None


def _rates(path: str) -> tuple[str, Any] | None:
    asked = re.fullmatch(r"/rates/v1/([a-z-]+)", path)
    file = Path(os.environ[RATES_VARIABLE]) / f"{asked[1]}.json" if asked else None
    return ("200 OK", json.loads(file.read_bytes())) if file is not None and file.exists() else None

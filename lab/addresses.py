"""Where to look at a laboratory that runs."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from rich.console import Console

from lab.control_plane import ControlPlane
from lab.stack.stack import DEFAULT_DATA_DIR

API_URL_FILE = "api.url"
SCO_FILE = "sco.env"


def show_addresses(plane: ControlPlane, console: Console) -> None:
    """The addresses a person opens, and the commands that use them."""
    (plane.data_dir / API_URL_FILE).write_text(plane.api_url + "\n")
    exports = exports_of(plane)
    (plane.data_dir / SCO_FILE).write_text(exports)
    console.print("[bold green]Ready.[/] Everything listens on 127.0.0.1 only.")
    console.print(f"  screens      {plane.api_url}/ (sign in as ada, or another of the issuer's people)")
    console.print(f"  REST         {plane.api_url}/openapi.json")
    console.print(f"  gRPC         {plane.grpc_address} (sco.compute.v1.ComputePools, reflection is on)")
    console.print(f"  issuer       {plane.issuer_url} (for development only)")
    console.print(f"  Temporal UI  {plane.stack.web_ui_url}")
    console.print(f"  metrics      {', '.join(plane.metrics_urls)}")
    console.print("  sco          signs in with these, which are in a file, too:")
    console.print(exports.rstrip(), soft_wrap=True)
    console.print(f"  try          . {plane.data_dir / SCO_FILE} && .venv/bin/sco status", soft_wrap=True)
    console.print(f"  stop         {stop_command(plane.data_dir)}", soft_wrap=True)


def stop_command(data_dir: Path) -> str:
    """What stops the laboratory in this folder: `make down` knows of one alone."""
    if data_dir.resolve() == DEFAULT_DATA_DIR.resolve():
        return "make down"
    return f".venv/bin/sco-lab down --data-dir {quote(os.path.relpath(data_dir))}"


def exports_of(plane: ControlPlane) -> str:
    """Shell lines that let `sco` find this laboratory and sign in to it. They hold no secret."""
    return "".join(f"export {name}={quote(value)}\n" for name, value in plane.cli_environment().items())

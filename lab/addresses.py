"""Where to look at a laboratory that runs."""

from __future__ import annotations

from rich.console import Console

from lab.control_plane import ControlPlane

API_URL_FILE = "api.url"


def show_addresses(plane: ControlPlane, console: Console) -> None:
    """The addresses a person opens, and the command that uses them."""
    (plane.data_dir / API_URL_FILE).write_text(plane.api_url + "\n")
    console.print("[bold green]Ready.[/] Everything listens on 127.0.0.1 only; there is no sign-in yet.")
    console.print(f"  screens      {plane.api_url}/")
    console.print(f"  REST         {plane.api_url}/openapi.json")
    console.print(f"  Temporal UI  {plane.stack.web_ui_url}")
    console.print(f"  metrics      {plane.api_url}/metrics and {plane.metrics_url}")
    console.print(f"  try          .venv/bin/sco --server {plane.api_url} status", soft_wrap=True)
    console.print("  stop         make down")

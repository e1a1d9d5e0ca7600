"""`sco regions`: how the provider's regions are."""

from __future__ import annotations

import typer

from clients.cli import regions_view
from clients.cli.answers import read_all
from clients.cli.commands.options import DEFAULT_LIMIT, Output
from clients.cli.region_answers import Region
from clients.cli.screen import Format
from clients.cli.session import session_of


def regions(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show the provider's regions: circuit, quota and leases.

    A region with an open circuit is not called. A partition without a licence launches and deletes
    nothing there.

    \b
    Examples:
      sco regions
      sco regions -o json
    """
    session = session_of(context)
    listed = session.api.listing("/factory/provider-regions", {}, DEFAULT_LIMIT)
    if output is Format.TABLE:
        regions_view.show(session.screen, read_all(Region, listed.items, "the regions"))
    else:
        session.screen.document(listed.items, output)

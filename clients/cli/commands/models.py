"""`sco models`: place a model on a pool that serves it, hold it there, and give it back."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any
from uuid import UUID

import typer

from clients.cli import model_view
from clients.cli.answers import read
from clients.cli.api import json_body, path
from clients.cli.commands.options import DEFAULT_TIMEOUT, Output, PlacementId, Timeout
from clients.cli.failures import Exit, Failure
from clients.cli.model_answers import ModelPlacement, PlacedModel
from clients.cli.model_waiting import PLACEMENTS, wait_for_model
from clients.cli.screen import Format
from clients.cli.session import Session, session_of
from domain.pool import SecurityBoundary
from domain.serving.requirements import MAX_VRAM_GB, LatencyClass

models = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Place models on pools that serve them."
)


def _price(text: str) -> Decimal:
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal("nan")
    if not price.is_finite():
        raise typer.BadParameter(f"{text!r} is no amount of US dollars, such as 4.50")
    return price


@models.command()
def place(
    context: typer.Context,
    *,
    deployment: Annotated[
        str,
        typer.Option("--deployment", metavar="NAME", help="What the model is for.", show_default=False),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="NAME", help="The model as serving endpoints name it.", show_default=False
        ),
    ],
    vram_gb: Annotated[
        int,
        typer.Option(
            "--vram-gb",
            metavar="N",
            min=1,
            max=MAX_VRAM_GB,
            help="How much accelerator memory it needs, in GB.",
            show_default=False,
        ),
    ],
    boundary: Annotated[
        SecurityBoundary,
        typer.Option("--boundary", help="The least strict boundary that is acceptable."),
    ] = SecurityBoundary.PRIVATE,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            metavar="NAME",
            help="Where it may run. May be repeated; any region if left out.",
            show_default=False,
        ),
    ] = None,
    latency: Annotated[
        LatencyClass, typer.Option("--latency", help="How soon it has to serve.")
    ] = LatencyClass.STANDARD,
    max_price: Annotated[
        Decimal | None,
        typer.Option(
            "--max-price",
            metavar="USD",
            parser=_price,
            help="The most that an hour of the pool may cost.",
            show_default=False,
        ),
    ] = None,
    run_id: Annotated[
        UUID | None,
        typer.Option("--run-id", metavar="UUID", help="The run it is for.", show_default=False),
    ] = None,
    show_credential: Annotated[
        bool, typer.Option("--show-credential", help="Print the endpoint's token, not only when it expires.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the model is loaded.")] = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    output: Output = Format.TABLE,
) -> None:
    """Choose a pool for a model now, and keep its memory there.

    Prints the pool with its endpoint, whether the model is warm, until when the memory is kept, and why
    not the other pools. No requirement is relaxed: where no pool is chosen, it ends with 5 and the
    reasons. Give back what is not used with sco models release; otherwise it expires.

    \b
    Examples:
      sco models place --deployment assistant --model llama3.3:70b --vram-gb 70 --boundary regional
      sco models place --deployment chat --model qwen3:8b --vram-gb 6 --region eu-north --wait
    """
    session = session_of(context)
    asked = {
        "deploymentId": deployment,
        "runId": run_id,
        "model": model,
        "vramGb": vram_gb,
        "boundary": boundary.value,
        "regions": region or [],
        "latencyClass": latency.value,
        "maxPricePerHourUsd": max_price,
    }
    document = session.api.post(path(*PLACEMENTS), json_body(asked))
    answer = read(PlacedModel, document, "the placement")
    if output is Format.TABLE:
        model_view.placed(session.screen, answer, show_credential=show_credential)
    else:
        session.screen.document(document if show_credential else _without_token(document), output)
    if answer.chosen_pool_id is None:
        raise _no_pool(answer)
    if wait and not answer.warm:
        _wait(session, answer, timeout, output)


@models.command()
def release(context: typer.Context, placement: PlacementId) -> None:
    """Give back what a placement keeps. Doing it again changes nothing.

    \b
    Example:
      sco models release 0d31f0e2-45f2-4eba-b2b3-933738c1ff2f
    """
    _told(context, placement, "release")


@models.command()
def renew(context: typer.Context, placement: PlacementId) -> None:
    """Hold a placement for another while from now on.

    \b
    Example:
      sco models renew 0d31f0e2-45f2-4eba-b2b3-933738c1ff2f
    """
    _told(context, placement, "renew")


def _told(context: typer.Context, placement: UUID, action: str) -> None:
    session = session_of(context)
    document = session.api.post(path(*PLACEMENTS, str(placement), action))
    answer = read(ModelPlacement, document, "the placement")
    session.screen.line(f"placement {placement}: {model_view.state_text(answer)}")


def _wait(session: Session, answer: PlacedModel, timeout: float, output: Format) -> None:
    """Until the model is loaded; the answer is printed before, since its id is needed if that fails."""
    loaded_at = wait_for_model(session, answer, seconds=timeout)
    if output is Format.TABLE:
        seconds = max(0.0, (loaded_at - answer.decided_at).total_seconds())
        session.screen.line()
        session.screen.line(f"{answer.model} is loaded, {seconds:.1f} s after it was placed")


def _without_token(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it came, without the token that nobody asked to see."""
    credential = document.get("credential")
    if not isinstance(credential, dict):
        return document
    return document | {"credential": {key: value for key, value in credential.items() if key != "token"}}


def _no_pool(answer: PlacedModel) -> Failure:
    return Failure(
        Exit.SHORTFALL,
        f"{answer.outcome}: {answer.text}",
        (f"sco describe model-placement {answer.placement_id} says of every pool why not",),
    )

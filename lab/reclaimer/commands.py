"""`sco-lab reclaim`: the provider takes nodes back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab.nodes.commands import DATA_DIR, FOLDER, DataDir, refusals
from lab.nodes.running import RunningNodes
from lab.reclaimer.reclaimer import Reclaimer
from lab.reclaimer.targets import Node, NothingThere, Target, TargetKind, chosen
from lab.reclaimer.trace import TraceRefused, read_trace
from lab.relay.decisions import WARNING_SECONDS
from lab.stack.errors import StackError
from wire.notices import MAX_WARNING_SECONDS, Notice, NoticeCause, NoticeKind

Name = Annotated[str | None, typer.Option()]
ONE_TARGET = "Say what is taken back: one of --node, --pool, --group, --hall."
ONE_WAY = "--advisory, --withdraw, --no-notice and --trace exclude each other."


def reclaim(
    node: Name = None,
    pool: Name = None,
    group: Annotated[str | None, typer.Option(help="A correlation group.")] = None,
    hall: Name = None,
    *,
    advisory: Annotated[bool, typer.Option("--advisory", help="Say that they may be taken back.")] = False,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw the notices that stand.")] = False,
    no_notice: Annotated[
        bool, typer.Option("--no-notice", help="End them at once, as a fault does.")
    ] = False,
    trace: Annotated[Path | None, typer.Option(help="Take back by this availability trace.")] = None,
    seed: Annotated[int, typer.Option(help="Who is taken by a trace.")] = 1,
    speed: Annotated[float, typer.Option(min=0.1, help="How much faster than recorded a trace runs.")] = 1.0,
    warning_seconds: Annotated[float, typer.Option(min=1, max=MAX_WARNING_SECONDS)] = WARNING_SECONDS,
    drill: Annotated[bool, typer.Option("--drill", help="Give the cause as drill.")] = False,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Take nodes back: with a notice of 120 s, or as the options say."""
    console = Console(highlight=False)
    with refusals():
        target = _target(node, pool, group, hall)
        if sum((advisory, withdraw, no_notice, trace is not None)) > 1:
            raise StackError(ONE_WAY)
        running = RunningNodes(data_dir / FOLDER)
        reclaimer = running.reclaimer(warning_seconds)
        cause = NoticeCause.DRILL if drill else NoticeCause.RECLAIM
        nodes = _chosen(running, target)
        said: tuple[Notice, ...] = ()
        if no_notice:
            reclaimer.end_without_notice(nodes)
            console.print(f"{len(nodes)} nodes ended without notice.")
        elif trace is not None:
            said = _follow(reclaimer, trace, nodes, seed, speed)
        elif withdraw:
            said = _withdraw(running, reclaimer, nodes)
        else:
            said = reclaimer.advise(nodes, cause) if advisory else reclaimer.reclaim(nodes, cause)
    for notice in said:
        console.print(_line(notice), soft_wrap=True)


def _chosen(running: RunningNodes, target: Target) -> tuple[Node, ...]:
    try:
        return chosen(running.nodes, target)
    except NothingThere as error:
        raise StackError(str(error)) from error


def _follow(
    reclaimer: Reclaimer, trace: Path, nodes: tuple[Node, ...], seed: int, speed: float
) -> tuple[Notice, ...]:
    try:
        read = read_trace(trace)
    except TraceRefused as error:
        raise StackError(str(error)) from error
    return reclaimer.follow(read, nodes, rng=random.Random(seed), speed=speed)


def _target(node: str | None, pool: str | None, group: str | None, hall: str | None) -> Target:
    named = zip(TargetKind, (node, pool, group, hall), strict=True)
    given = [Target(kind, name) for kind, name in named if name is not None]
    if len(given) != 1:
        raise StackError(ONE_TARGET)
    return given[0]


def _withdraw(running: RunningNodes, reclaimer: Reclaimer, nodes: tuple[Node, ...]) -> tuple[Notice, ...]:
    names = {one.instance_id for one in nodes}
    relay = running.relay()
    standing = [
        one for one in relay.standing() if one.instance_id in names and one.kind is not NoticeKind.WITHDRAWAL
    ]
    relay.close()
    if not standing:
        raise StackError("No notice stands for these nodes: there is nothing to withdraw.")
    return reclaimer.withdraw(standing)


def _line(notice: Notice) -> str:
    until = "" if notice.deadline is None else f", until {notice.deadline:%H:%M:%S} UTC"
    return f"{notice.instance_id}  {notice.kind}{until}  notice {notice.notice_id}"

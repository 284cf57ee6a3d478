"""`assay dlq`: what services could not handle, why, and sending it again (SPEC X.4)."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from assay.cli.dlq_outgoing import Chosen, Outgoing
from assay.cli.dlq_shown import letter_json, letter_lines, plain, table
from assay.cli.dlq_work import count_meant, groups_of, replayed, shown_letters
from assay.cli.failures import ending_cleanly
from assay.cli.stack import Bootstrap, default_bootstrap
from assay.dead_letters import DeadLetterView, Place
from assay.topics import catalogue

dlq = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, replay.")

T = TypeVar("T")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TOPICS = {topic.name: topic for topic in catalogue().dead_letters()}

Since = Annotated[
    str | None, typer.Option(help="Leave out what is older: 30m, 2h, 7d, or an ISO time (UTC).")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]


@dlq.command("list")
def list_(
    bootstrap: Bootstrap = None,
    topic: Annotated[str | None, typer.Option(help="A topic, or its dead-letter topic.")] = None,
    service: Annotated[str | None, typer.Option(help="What this service could not handle.")] = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by topic and error code, with the oldest, the newest and their size.

    Exit codes: 0 done, also where there are none; 1 the broker cannot be read; 2 wrong usage.
    """
    address, since_ms = default_bootstrap(bootstrap), _since_ms(since)
    groups = _run("list", groups_of(address, _chosen_topics(topic, service), since_ms))
    if as_json:
        for group in groups:
            print(json.dumps(group.to_json()))
    elif groups:
        print("\n".join(table(groups)))
    else:
        print("no dead letters", file=sys.stderr)


@dlq.command()
def show(
    topic: Annotated[str | None, typer.Argument(help="A dead-letter topic.")] = None,
    partition: Annotated[int | None, typer.Argument(min=0)] = None,
    offset: Annotated[int | None, typer.Argument(min=0)] = None,
    request_id: Annotated[str | None, typer.Option(help="All of this request.")] = None,
    bootstrap: Bootstrap = None,
    full: Annotated[
        bool, typer.Option("--full", help="The value too; it may hold personal data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter by its place, or all of a request: reason, origin, headers.

    Exit codes: 0 shown; 1 there is none, or the broker cannot be read; 2 wrong usage.
    """
    placed = topic is not None and partition is not None and offset is not None
    if placed == (request_id is not None) or (partition is not None and not placed):
        raise typer.BadParameter("give TOPIC PARTITION OFFSET, or --request-id")
    address, topics = default_bootstrap(bootstrap), [_known(topic)] if topic else sorted(_TOPICS)
    place = Place(topics[0], partition or 0, offset or 0) if placed else None

    def tell(letter: DeadLetterView, replayed: bool) -> None:
        shown = letter_json(letter, replayed=replayed, full=full)
        print(json.dumps(shown) if as_json else "\n".join(letter_lines(shown)), flush=True)

    if not _run("show", shown_letters(address, topics, place, request_id, tell)):
        print("assay dlq show: no such dead letter", file=sys.stderr)
        raise typer.Exit(1)


@dlq.command()
def replay(
    topic: Annotated[str, typer.Argument(help="A dead-letter topic.")],
    code: Annotated[str | None, typer.Option(help="Only of this error code.")] = None,
    request_id: Annotated[str | None, typer.Option(help="Only of this request.")] = None,
    partition: Annotated[int | None, typer.Option(min=0)] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="With --partition: one alone.")] = None,
    since: Since = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was replayed before.")] = False,
    bootstrap: Bootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to where they came from: same bytes, headers, key and partition.

    The ids are the same, so it is the same request again: replayed twice it still has one signed
    score. What was replayed is remembered and left out the next time. A record without an id of
    its own goes by its service's first retry topic, since its place is its id.

    Exit codes: 0 all replayed, or there was nothing to replay; 1 some could not be, or the broker
    refuses; 2 wrong usage, or not confirmed; 130 interrupted.
    """
    if offset is not None and partition is None:
        raise typer.BadParameter("--offset needs --partition", param_hint="--offset")
    address, name = default_bootstrap(bootstrap), _known(topic)
    chosen = Chosen(code, request_id, partition, offset, _since_ms(since), again)

    if not (yes or dry_run):
        count = _run("replay", count_meant(address, name, chosen, limit))
        if not count:
            print("nothing to replay", file=sys.stderr)
            return
        if not sys.stdin.isatty():
            print(f"assay dlq replay: {count} to replay; --yes confirms it", file=sys.stderr)
            raise typer.Exit(2)
        if not typer.confirm(f"replay {count} of {name}?", err=True):
            raise typer.Exit(2)

    def tell(letter: DeadLetterView, outgoing: Outgoing) -> None:
        if as_json:
            shown = {
                "from": str(letter.record.place), "to": outgoing.topic, "code": letter.code,
                "request_id": letter.request_id, "sent": not dry_run,
            }  # fmt: skip
            print(json.dumps(shown), flush=True)
        else:
            line = f"{letter.record.place} -> {outgoing.topic}  {letter.request_id}  {letter.code}"
            print(plain(line), flush=True)

    tally = _run("replay", replayed(address, name, chosen, limit, dry_run, tell))
    for place, reason in tally.refused:
        print(f"assay dlq replay: {place}: {plain(reason)}", file=sys.stderr)
    what = "would be replayed" if dry_run else "replayed"
    refused = f", {len(tally.refused)} cannot be" if tally.refused else ""
    print(f"{tally.replayed} {what}{refused}", file=sys.stderr)
    if tally.refused:
        raise typer.Exit(1)


def _run(command: str, work: Coroutine[Any, Any, T]) -> T:
    with ending_cleanly(f"dlq {command}", pipe_code=1):
        try:
            return asyncio.run(work)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _known(topic: str) -> str:
    if topic not in _TOPICS:
        names = "".join(f"\n  {name}" for name in sorted(_TOPICS))
        raise typer.BadParameter(f"{topic!r} is no dead-letter topic; those are{names}")
    return topic


def _chosen_topics(topic: str | None, service: str | None) -> list[str]:
    found = [
        name
        for name, letter in _TOPICS.items()
        if (topic is None or name == topic or name.startswith(f"{topic}."))
        and service in (None, *letter.producers)
    ]
    if not found:
        raise typer.BadParameter("no dead-letter topic is meant by --topic and --service")
    return found


def _since_ms(since: str | None) -> int:
    if since is None:
        return 0
    if found := re.fullmatch(r"(\d{1,9})([smhd])", since):
        return max(0, int((time.time() - int(found[1]) * _UNITS_S[found[2]]) * 1000))
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        raise typer.BadParameter(f"{since!r}: 30m, 2h, 7d or an ISO time is expected",
                                 param_hint="--since") from None  # fmt: skip
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))

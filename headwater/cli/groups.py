"""`headwater groups`: consumer groups, their lag, and moving them back or forth (the replay)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headwater.cli import options
from headwater.cli.output import note, print_heading, print_json, print_table, say

if TYPE_CHECKING:
    from headwater.client.admin import Admin

PartitionId = tuple[str, int]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="groups")


@app.callback()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@app.command("list")
def list_groups(
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """List the consumer groups with their state, protocol and number of members.

    \b
    Examples:
      headwater groups list
      headwater groups list --json
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.groups import Groups

    found = Groups(Admin(connection)).summaries()
    if json:
        for group in found:
            print_json(
                {"group": group.name, "state": group.state, "type": group.type, "members": group.members}
            )
    elif found:
        print_table(
            ("group", "state", "type", "members"),
            [(group.name, group.state, group.type, group.members) for group in found],
        )
    else:
        note("no groups yet; a consumer makes one: `headwater consume TOPIC --group NAME`")


@app.command("describe")
def describe(
    name: Name,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Show how far a group is in each partition, and which member reads it.

    The lag is the offsets between the group's last commit and the end of the partition.

    \b
    Examples:
      headwater groups describe billing
      headwater groups describe billing --json | jq .total_lag
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.groups import Groups

    groups = Groups(Admin(connection))
    group = groups.get(name)
    progress = groups.progress(group)
    total = sum(place.lag or 0 for place in progress)
    if json:
        print_json(
            {
                "group": group.name,
                "state": group.state,
                "type": group.type,
                "assignor": group.assignor,
                "members": [
                    {
                        "member": member.id,
                        "client": member.client,
                        "host": member.host,
                        "instance": member.instance,
                        "partitions": [
                            {"topic": topic, "partition": partition} for topic, partition in member.partitions
                        ],
                    }
                    for member in group.members
                ],
                "partitions": [
                    {
                        "topic": place.topic,
                        "partition": place.partition,
                        "committed": place.committed,
                        "end": place.end,
                        "lag": place.lag,
                        "member": place.member.id if place.member else None,
                    }
                    for place in progress
                ],
                "total_lag": total,
            }
        )
        return
    count = len(group.members)
    print_heading(
        f"{group.name}: {group.state}, {group.type} protocol, "
        f"{count} member{'' if count == 1 else 's'}, total lag {total}"
    )
    print_table(
        ("topic", "partition", "committed", "end", "lag", "member", "host"),
        [
            (
                place.topic,
                place.partition,
                place.committed,
                place.end,
                place.lag,
                place.member.id if place.member else None,
                place.member.host if place.member else None,
            )
            for place in progress
        ],
        kind="partition",
    )
    if not _on_terminal():
        print_table(("lag",), [(total,)], kind="total_lag")


class Move(NamedTuple):
    topic: str
    partition: int
    old: int | None
    new: int
    remark: str


@app.command("reset")
def reset(
    name: Name,
    to_beginning: Annotated[
        bool, typer.Option("--to-beginning", help="To the first record that is there.")
    ] = False,
    to_end: Annotated[bool, typer.Option("--to-end", help="To the end: skip what is there.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first record of this time or later: ISO 8601, epoch milliseconds, or an age ('1h').",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="By N records, back when N is negative.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:P,...]",
            help="Only this topic, or these partitions of it; may be repeated. Else all the group has read.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Move a group to another place in its topics: the replay.

    The group must have no active members; they start from the new place when they come back. An offset
    outside of a partition is moved to its nearest end, and the table says so.

    \b
    Examples:
      headwater groups reset billing --to-beginning --dry-run
      headwater groups reset billing --to-time '2 hours ago' --topic orders
      headwater groups reset billing --shift-by -100 --topic orders:0,1
    """
    from headwater.errors import BadInput, UnknownTopic

    targets = [to_beginning, to_end, to_offset is not None, to_time is not None, shift_by is not None]
    if sum(targets) != 1:
        cause = "it needs one place to go to" if not any(targets) else "it can go to one place only"
        step = "Give one of --to-beginning, --to-end, --to-offset, --to-time, --shift-by."
        raise BadInput("reset", f"group {name}", cause, step)
    moment = None
    if to_time is not None:
        from headwater.cli.moments import parse_moment

        moment = parse_moment(to_time, "--to-time")
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin, both_ends
    from headwater.client.groups import Groups

    admin = Admin(connection)
    groups = Groups(admin)
    committed = groups.committed(name)
    if not topic and not committed:
        groups.get(name, "reset")  # raises with near names when the group is unknown
        raise BadInput("reset", f"group {name}", "it has committed nothing", "Name a --topic.")
    groups.refuse_if_active(name, "reset")
    partitions = _scope(admin, topic) if topic else sorted(committed)
    if shift_by is not None and (never := [place for place in partitions if place not in committed]):
        cause = f"the group has committed nothing for {never[0][0]}-{never[0][1]}"
        raise BadInput("shift", f"group {name}", cause, "Use --to-offset or --to-time.")

    try:
        ends = both_ends(admin, partitions)
    except UnknownTopic as error:
        # Only its own commits can name a topic that is gone: _scope has checked the others.
        step = "Name the topics that are still there with --topic."
        raise UnknownTopic("reset", f"group {name} in {error.subject}", error.cause, step) from error
    times = admin.at_time(partitions, moment) if moment is not None else {}
    moves = []
    for place in partitions:
        first, last = ends[place]
        old = committed.get(place)
        if to_beginning:
            wanted = first
        elif to_offset is not None:
            wanted = to_offset
        elif shift_by is not None:
            wanted = committed[place] + shift_by
        elif moment is not None:
            at = times[place]
            wanted = last if at is None else at
        else:
            wanted = last
        new = min(max(wanted, first), last)
        remark = (
            ""
            if new == wanted
            else f"{wanted} is {'before the beginning' if new > wanted else 'past the end'}"
        )
        moves.append(Move(*place, old, new, remark))

    if not dry_run:
        groups.set_offsets(name, {(move.topic, move.partition): move.new for move in moves})
    _show(name, moves, dry_run, json)


def _show(name: str, moves: list[Move], dry_run: bool, json: bool) -> None:
    if json:
        for move in moves:
            print_json({"group": name, **move._asdict(), "applied": not dry_run})
        return
    print_table(("topic", "partition", "old", "new", "remark"), moves)
    partitions = f"{len(moves)} partition{'' if len(moves) == 1 else 's'}"
    note(f"{'would move' if dry_run else 'moved'} {name} in {partitions}")


def _scope(admin: "Admin", arguments: Iterable[str]) -> list[PartitionId]:
    """The partitions that ``TOPIC`` and ``TOPIC:0,2`` name."""
    from headwater.errors import BadInput

    chosen: set[PartitionId] = set()
    for argument in arguments:
        topic, colon, numbers = argument.partition(":")
        existing = admin.partitions(topic, "reset")
        if not colon:
            chosen |= {(topic, number) for number in existing}
            continue
        for text in numbers.split(","):
            if not text.strip().isdecimal() or int(text) not in existing:
                cause = f"{topic} has partitions 0 to {len(existing) - 1}, not {text.strip() or 'none'!r}"
                raise BadInput("read", f"--topic {argument}", cause)
            chosen.add((topic, int(text)))
    return sorted(chosen)


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP", help="The groups to delete.")],
    yes: options.Yes = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Delete groups and the offsets they have committed; on a terminal it asks first.

    The groups must have no active members.

    \b
    Examples:
      headwater groups delete billing
      headwater groups delete test-1 test-2 --yes
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.groups import Groups

    groups = Groups(Admin(connection))
    names = list(dict.fromkeys(names))
    for name in names:
        groups.get(name, "delete")
        groups.refuse_if_active(name, "delete")
    options.confirm(f"Delete {', '.join(names)} with all committed offsets?", yes)
    for name in names:
        groups.delete(name)
        if json:
            print_json({"group": name, "deleted": True})
        else:
            say(f"deleted group {name}")


def _on_terminal() -> bool:
    import sys

    return sys.stdout.isatty()

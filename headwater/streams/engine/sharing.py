"""Which views share a query, and so one read of their stream.

A query costs a process, a checkpoint and a round of planning a batch, however little it does; ten views of
one stream should not pay that ten times. Views of the same stream in the same output mode become branches of
one query. What is kept in a checkpoint belongs to exactly these branches: a query goes on as long as all of
them are declared unchanged, a view that is new gets into another query, and when one of the branches is
changed or removed, the others are built anew in a new query while their old builds serve.

The members of a query are in the name of its checkpoint: ``clicks_by_page.1+top_pages.1``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LONGEST = 200  # characters of a directory's name


class Member(NamedTuple):
    """A build of an output, computed by some query."""

    name: str
    build: int


@dataclass(frozen=True)
class Wanted:
    """An output that a query is to compute. Those with equal `share` may be computed together."""

    member: Member
    share: object | None = None


def query_name(members: Iterable[Member]) -> str:
    """The name of the query, and of its checkpoint.

    >>> query_name([Member("words", 1), Member("lines", 2)])
    'words.1+lines.2'
    """
    return "+".join(f"{member.name}.{member.build}" for member in members)


def members_of(name: str) -> tuple[Member, ...]:
    """The members of the query with this name; none when it is not the name of one.

    >>> members_of("words.1+lines.2")
    (Member(name='words', build=1), Member(name='lines', build=2))
    >>> members_of("lost+found")
    ()
    """
    members = []
    for part in name.split("+"):
        output, _, build = part.rpartition(".")
        if not output or not build.isdigit():
            return ()
        members.append(Member(output, int(build)))
    return tuple(members)


def torn(wanted: Sequence[Wanted], existing: Iterable[str]) -> set[str]:
    """The outputs whose build cannot go on: it shares a query with one that is not wanted any more.

    >>> sorted(torn([Wanted(Member("a", 1)), Wanted(Member("b", 2))], ["a.1+b.1"]))
    ['a']
    """
    present = {each.member for each in wanted}
    found: set[str] = set()
    for name in existing:
        members = set(members_of(name))
        if members & present and not members <= present:
            found |= {member.name for member in members & present}
    return found


def queries(wanted: Sequence[Wanted], existing: Iterable[str]) -> list[tuple[Member, ...]]:
    """The queries to run: those that exist as they are, and new ones for the rest.

    >>> shared = [Wanted(Member(name, 1), "clicks") for name in "abc"]
    >>> queries(shared, ["a.1"])
    [(Member(name='a', build=1),), (Member(name='b', build=1), Member(name='c', build=1))]
    """
    present = {each.member for each in wanted}
    result = [members for name in existing if (members := members_of(name)) and set(members) <= present]
    taken = {member for members in result for member in members}
    groups: dict[object, list[Member]] = {}
    for each in wanted:
        if each.member in taken:
            continue
        if each.share is None:
            result.append((each.member,))
            continue
        group = groups.setdefault(each.share, [])
        if group and len(query_name([*group, each.member])) > LONGEST:
            result.append(tuple(group))
            group.clear()
        group.append(each.member)
    result += [tuple(group) for group in groups.values() if group]
    order = {each.member: number for number, each in enumerate(wanted)}
    return sorted(result, key=lambda members: min(order[member] for member in members))

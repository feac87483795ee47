"""Which views share a query, over the life of an application."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.engine.sharing import LONGEST, Member, Wanted, members_of, queries, query_name, torn

NAMES = st.text("ab.c", min_size=1, max_size=60)
MEMBERS = st.builds(Member, NAMES, st.integers(1, 3))
WANTED = st.lists(
    st.builds(Wanted, MEMBERS, st.sampled_from([None, "clicks", "orders"])),
    unique_by=lambda each: each.member.name,
    max_size=8,
)
EXISTING = st.lists(
    st.lists(MEMBERS, min_size=1, max_size=4, unique_by=lambda each: each.name).map(query_name), max_size=4
)


@given(st.lists(MEMBERS, min_size=1, max_size=5))
def test_a_name_tells_its_members(members: list[Member]) -> None:
    assert members_of(query_name(members)) == tuple(members)


def test_what_is_not_the_name_of_a_query_has_no_members() -> None:
    for name in ("", "lost+found", "words", "words.", ".1", "words.1+", "words.x"):
        assert members_of(name) == (), name


def without_overlap(existing: list[str]) -> list[str]:
    """A directory has each member in one query."""
    taken: set[Member] = set()
    kept = []
    for name in existing:
        members = set(members_of(name))
        if not members & taken:
            taken |= members
            kept.append(name)
    return kept


@given(WANTED, EXISTING)
def test_every_output_is_computed_by_exactly_one_query(wanted: list[Wanted], existing: list[str]) -> None:
    existing = without_overlap(existing)
    found = queries(wanted, existing)
    assert sorted(member for members in found for member in members) == sorted(w.member for w in wanted)
    present = {each.member for each in wanted}
    share = {each.member: each.share for each in wanted}
    for members in found:
        if query_name(members) in existing:
            continue
        # A new one: of outputs that may share, with a name that a directory can have.
        assert len({share[member] for member in members}) == 1
        assert len(members) == 1 or (share[members[0]] is not None and len(query_name(members)) <= LONGEST)
    for name in existing:
        if set(members_of(name)) <= present:
            assert members_of(name) in found, "a query that is wanted as it is goes on"


@given(WANTED, EXISTING)
def test_a_torn_query_is_one_that_has_lost_a_member(wanted: list[Wanted], existing: list[str]) -> None:
    present = {each.member for each in wanted}
    expected = set()
    for name in existing:
        members = set(members_of(name))
        if members - present:
            expected |= {member.name for member in members & present}
    assert torn(wanted, existing) == expected


def test_the_life_of_an_application() -> None:
    def want(*members: tuple[str, int]) -> list[Wanted]:
        return [Wanted(Member(*member), "clicks") for member in members]

    first = queries(want(("a", 1), ("b", 1)), [])
    assert [query_name(members) for members in first] == ["a.1+b.1"]
    # A third view: the others are left alone.
    added = want(("a", 1), ("b", 1), ("c", 1))
    assert torn(added, ["a.1+b.1"]) == set()
    assert [query_name(members) for members in queries(added, ["a.1+b.1"])] == ["a.1+b.1", "c.1"]
    # b is changed: a has to be built anew, c goes on.
    changed = want(("a", 1), ("b", 2), ("c", 1))
    assert torn(changed, ["a.1+b.1", "c.1"]) == {"a"}
    again = want(("a", 2), ("b", 2), ("c", 1))
    assert [query_name(members) for members in queries(again, ["a.1+b.1", "c.1"])] == ["a.2+b.2", "c.1"]

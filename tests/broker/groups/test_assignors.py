"""Server-side assignors: complete, exclusive, even, and moving no more than they must."""

import time
import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.broker.groups.assignors import ASSIGNORS, Members, MemberSpec, TopicSizes, range_, uniform
from headwater.broker.groups.records import Assignment

TOPICS = [uuid.UUID(int=number) for number in range(1, 7)]
NAMES = [f"member-{number}" for number in range(12)]

sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))
subscriptions = st.frozensets(st.sampled_from(TOPICS))
had = st.dictionaries(
    st.sampled_from(TOPICS), st.lists(st.integers(0, 10), unique=True).map(tuple), max_size=4
)
groups = st.dictionaries(
    st.sampled_from(NAMES), st.builds(MemberSpec, subscriptions, had, st.none() | st.text(max_size=2))
)
homogeneous = st.builds(
    lambda subscribed, members: {
        name: MemberSpec(subscribed, spec.assigned, spec.instance_id) for name, spec in members.items()
    },
    subscriptions,
    groups,
)


def partitions(assignment: Assignment) -> set[tuple[uuid.UUID, int]]:
    return {(topic, partition) for topic, listed in assignment.items() for partition in listed}


def check_complete(members: Members, topics: TopicSizes, result: dict[str, Assignment]) -> None:
    """Each partition of a subscribed topic has one owner, who subscribes to it; there are no others."""
    assert result.keys() == members.keys()
    owners = Counter(p for assignment in result.values() for p in partitions(assignment))
    wanted = {
        (topic, partition)
        for topic, size in topics.items()
        if any(topic in spec.subscribed for spec in members.values())
        for partition in range(size)
    }
    assert owners == Counter(wanted)
    for name, assignment in result.items():
        assert assignment.keys() <= members[name].subscribed
        assert all(assignment.values()), "no empty lists"


@given(st.sampled_from(list(ASSIGNORS.values())), groups, sizes)
def test_every_partition_has_one_owner(assignor: type[object], members: Members, topics: TopicSizes) -> None:
    check_complete(members, topics, assignor(members, topics))  # type: ignore[call-arg,arg-type]


@given(homogeneous, sizes)
def test_uniform_is_even_when_all_subscribe_to_the_same(members: Members, topics: TopicSizes) -> None:
    loads = [len(partitions(assignment)) for assignment in uniform(members, topics).values()]
    assert not loads or max(loads) - min(loads) <= 1


@given(groups, sizes)
def test_uniform_leaves_no_move_that_would_even_out(members: Members, topics: TopicSizes) -> None:
    result = uniform(members, topics)
    loads = {name: len(partitions(assignment)) for name, assignment in result.items()}
    for giver, assignment in result.items():
        for topic in assignment:
            for taker, spec in members.items():
                if topic in spec.subscribed:
                    assert loads[giver] - loads[taker] <= 1, (giver, taker, topic)


@given(groups, sizes)
def test_uniform_changes_nothing_when_nothing_changed(members: Members, topics: TopicSizes) -> None:
    first = uniform(members, topics)
    settled = {
        name: MemberSpec(spec.subscribed, first[name], spec.instance_id) for name, spec in members.items()
    }
    assert uniform(settled, topics) == first


@given(homogeneous, sizes, st.data())
def test_uniform_moves_only_what_evenness_needs(
    members: Members, topics: TopicSizes, data: st.DataObject
) -> None:
    """When somebody comes or goes, a member that keeps its share keeps its partitions."""
    before = uniform(members, topics)
    settled = {name: MemberSpec(spec.subscribed, before[name]) for name, spec in members.items()}
    changed = dict(settled)
    if settled and data.draw(st.booleans()):
        del changed[data.draw(st.sampled_from(sorted(settled)))]
    else:
        subscribed = next(iter(settled.values())).subscribed if settled else frozenset(topics)
        changed["newcomer"] = MemberSpec(subscribed, {})
    after = uniform(changed, topics)
    for name in changed.keys() & before.keys():
        had_before, has_now = partitions(before[name]), partitions(after[name])
        lost = had_before - has_now
        assert len(lost) == max(len(had_before) - len(has_now), 0), "partitions were swapped"


@given(groups, sizes)
def test_range_gives_the_same_slice_of_topics_of_the_same_size(members: Members, topics: TopicSizes) -> None:
    """Of two topics with equally many partitions and the same subscribers, a member gets the same numbers."""
    result = range_(members, topics)
    for one in topics:
        for other in topics:
            same_size = topics[one] == topics[other]
            same_readers = all((one in s.subscribed) == (other in s.subscribed) for s in members.values())
            if same_size and same_readers:
                for assignment in result.values():
                    assert assignment.get(one) == assignment.get(other)


@given(groups, sizes)
def test_range_gives_adjacent_partitions_of_even_number(members: Members, topics: TopicSizes) -> None:
    result = range_(members, topics)
    for topic in topics:
        shares = [result[name].get(topic, ()) for name, spec in members.items() if topic in spec.subscribed]
        for share in shares:
            assert list(share) == list(range(share[0], share[-1] + 1)) if share else True
        if shares:
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


@settings(max_examples=20)
@given(st.randoms())
def test_the_order_of_members_does_not_matter(random: object) -> None:
    members = {name: MemberSpec(frozenset(TOPICS[:2]), {}) for name in NAMES}
    topics = {TOPICS[0]: 7, TOPICS[1]: 5}
    shuffled = dict(random.sample(sorted(members.items()), len(members)))  # type: ignore[attr-defined]
    for assignor in ASSIGNORS.values():
        assert assignor(members, topics) == assignor(shuffled, topics)


def test_a_thousand_members_share_ten_thousand_partitions_quickly() -> None:
    topics = {uuid.UUID(int=number): 100 for number in range(100)}
    everything = frozenset(topics)
    members = {f"m{number:04}": MemberSpec(everything, {}) for number in range(1000)}
    begun = time.perf_counter()
    first = uniform(members, topics)
    settled = {name: MemberSpec(everything, owned) for name, owned in first.items()}
    settled["newcomer"] = MemberSpec(everything, {})
    uniform(settled, topics)
    assert time.perf_counter() - begun < 2

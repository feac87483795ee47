"""How a batch is cut into tasks, whatever its ranges are."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.sources.positions import ranges, tasks

PLACES = st.tuples(st.sampled_from(["clicks", "orders"]), st.integers(0, 5))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 500), max_size=8)


@given(OFFSETS, OFFSETS, st.integers(1, 200), st.integers(1, 400))
def test_tasks_read_all_ranges_once_and_in_order(
    start: dict[tuple[str, int], int], more: dict[tuple[str, int], int], piece: int, least: int
) -> None:
    end = {place: start.get(place, 0) + count for place, count in more.items()}
    wanted = ranges(start, end, piece)
    cut = tasks(wanted, least)
    assert [each for task in cut for each in task] == wanted
    sizes = [sum(each.end - each.start for each in task) for task in cut]
    assert all(least <= size < least + piece for size in sizes[:-1])
    assert cut == tasks(wanted, least)

"""Batches that follow from their number alone, and a process that applies them until it is killed.

``python -m tests.views.endless URL`` goes on after the last batch that the store has, as a query does after
its checkpoint; one batch in four it gives again first, as after a kill between the commit and the checkpoint.
"""

import functools
import random
import sys

from headwater.views import Batch, ViewStore, open_store
from tests.views.words import batch, words

ROWS = 60  # a batch
KEYS = 200


def numbered(number: int) -> Batch:
    """The batch of this number: rows with its number in them, some deletes, now and then all anew."""
    r = random.Random(number)
    rows = [(f"w{r.randrange(KEYS)}", number * 1000 + place) for place in range(ROWS)]
    deleted = [] if replaces(number) else [f"w{r.randrange(KEYS)}" for _ in range(10)]
    return batch(number, rows, deleted, offsets={"lines": {"0": number * ROWS}})


def replaces(number: int) -> bool:
    return number % 10 == 9


@functools.cache
def after(number: int) -> dict[str, int]:
    """What the view holds after this batch. Ask in ascending order."""
    if number < 0:
        return {}
    given = numbered(number)
    rows = {} if replaces(number) else dict(after(number - 1))
    if given.deleted_keys is not None:
        for word in given.deleted_keys.column("word").to_pylist():
            rows.pop(word, None)
    rows.update(zip(given.rows.column("word").to_pylist(), given.rows.column("n").to_pylist(), strict=True))
    return rows


def give(store: ViewStore, number: int) -> bool:
    """Apply the batch of this number."""
    return (store.replace if replaces(number) else store.apply)("words", 1, numbered(number))


def run(url: str) -> None:
    """Apply batches for ever; says so after the first."""
    with open_store(url) as store:
        store.define(words(), "endless")
        done = store.progress("words", 1).batch
        number = 0 if done is None else done + 1
        assert give(store, number)
        print("ready", flush=True)
        while True:
            number += 1
            if number and number % 4 == 0:
                assert not give(store, number - 1)
            assert give(store, number)


if __name__ == "__main__":
    run(sys.argv[1])

"""Joins of two streams: events with one key whose times lie within a range of each other."""

from collections.abc import Sequence
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.errors import ApplicationInvalid
from headwater.streams.durations import Duration, microseconds
from headwater.streams.naming import col
from headwater.streams.state import HELD_BACK
from headwater.streams.times import held_back_of, required_time, without_time

How = Literal["inner", "left", "right", "full"]

_LEFT, _RIGHT = "_headwater_left_", "_headwater_right_"


def join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    within: Duration | None = None,
    before: Duration | None = None,
    after: Duration | None = None,
    how: How = "inner",
    suffix: str | None = "_right",
) -> DataFrame:
    """Each event of `left` with those of `right` that have the same values of `on` and come near it in time.

    Near is `within` so long before or after it; or `before` and `after` say the two apart: how long the
    right one may come before the left one, and how long after (not at all, when only the other is said)::

        hw.join(orders, payments, on="order_id", after="15 minutes", how="left")

    The outer joins (left, right, full) also give events without a partner, with nulls in its place, once
    the watermark says that none can come any more. The columns are those of `on`, of `left` and of `right`;
    one of `right` that `left` has too gets the `suffix` (None refuses it). The event time is that of
    `left`; of `right` in a right join. In a full join it is null where the left event is missing.
    """
    keys = [on] if isinstance(on, str) else list(on)
    subject = f"two streams on {', '.join(keys)}"
    if how not in get_args(How):
        raise ApplicationInvalid("join", subject, f"how is {how!r}", "Say inner, left, right or full.")
    _check_keys(left, right, keys, subject)
    earliest, latest = _range(within, before, after, subject)
    left_time = required_time(left, "join", f"the left of {subject}")
    right_time = required_time(right, "join", f"the right of {subject}")
    names = _names_of_right(left, right, keys, suffix, subject)

    # Names that cannot clash: a stream may be joined with itself.
    lefts = left.select(*(col(name).alias(_LEFT + name) for name in left.columns))
    rights = right.select(*(col(name).alias(_RIGHT + name) for name in right.columns))
    condition = _near(col(_LEFT + left_time), col(_RIGHT + right_time), earliest, latest)
    for key in keys:
        condition = condition & (col(_LEFT + key) == col(_RIGHT + key))
    joined = lefts.join(rights, condition, {"full": "full_outer"}.get(how, how))

    times = (_LEFT + left_time, _RIGHT + right_time)
    kept, other = reversed(times) if how == "right" else times
    unmarked = without_time(joined, other)
    held_back = held_back_of(left, left_time) + held_back_of(right, right_time) + earliest + latest

    def shown_as(column: str, name: str) -> Column:
        if column != kept:
            return col(column).alias(name)
        marks = dict(unmarked.schema[kept].metadata or {}) | {HELD_BACK: held_back}
        return col(column).alias(name, metadata=marks)

    return unmarked.select(
        *(_key(key, how) for key in keys),
        *(shown_as(_LEFT + name, name) for name in left.columns if name not in keys),
        *(shown_as(_RIGHT + name, shown) for name, shown in names.items()),
    )


def _near(left: Column, right: Column, before: int, after: int) -> Column:
    return (right >= left - interval_of(before)) & (right <= left + interval_of(after))


def interval_of(length: int) -> Column:
    """So many microseconds, as Spark adds them to a time."""
    seconds, rest = divmod(length, 1_000_000)
    return F.expr(f"INTERVAL '{seconds}.{rest:06d}' SECOND")


def _key(key: str, how: How) -> Column:
    left, right = col(_LEFT + key), col(_RIGHT + key)
    chosen = {"right": right, "full": F.coalesce(left, right)}.get(how, left)
    return chosen.alias(key)


def _range(
    within: Duration | None, before: Duration | None, after: Duration | None, subject: str
) -> tuple[int, int]:
    if (within is None) == (before is None and after is None):
        raise ApplicationInvalid(
            "join",
            subject,
            "it needs either within=..., or before=... and after=...",
            "Say how far apart in time two events may be, or nothing could ever be forgotten.",
        )
    use = "the range of a join"
    if within is not None:
        length = microseconds(within, use=use, zero=True)
        return length, length
    return (
        microseconds(before, use=use, zero=True) if before is not None else 0,
        microseconds(after, use=use, zero=True) if after is not None else 0,
    )


def _check_keys(left: DataFrame, right: DataFrame, keys: list[str], subject: str) -> None:
    for side, frame in (("left", left), ("right", right)):
        if missing := [key for key in keys if key not in frame.columns]:
            raise ApplicationInvalid(
                "join",
                subject,
                f"the {side} has no column {missing[0]!r} among {', '.join(frame.columns)}",
                "Rename it: .withColumnRenamed(old, new).",
            )


def _names_of_right(
    left: DataFrame, right: DataFrame, keys: list[str], suffix: str | None, subject: str
) -> dict[str, str]:
    """How the columns of the right are called in the result."""
    taken, names = set(left.columns), {}
    for name in right.columns:
        if name in keys:
            continue
        shown = name if name not in taken or suffix is None else name + suffix
        if shown in taken:
            raise ApplicationInvalid(
                "join",
                subject,
                f"both have a column {shown!r}",
                "Rename it on one side, or say another suffix: suffix='_second'.",
            )
        taken.add(shown)
        names[name] = shown
    return names

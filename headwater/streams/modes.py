"""Output modes: in which of its ways Spark can run a function's result, asked of Spark itself.

update    a row is shown again whenever it changes: windows show while they are open
append    a row is shown once, when nothing can change it any more
complete  everything is shown after every batch; its state never shrinks
"""

from collections.abc import Iterator
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from headwater.errors import ApplicationInvalid
from headwater.streams.declarations import Emit
from headwater.streams.faults import sentence

Mode = Literal["update", "append", "complete"]

_WATERMARK = "EventTimeWatermark"

_CANDIDATES: dict[Emit | None, tuple[Mode, ...]] = {
    None: ("update", "append", "complete"),
    "updates": ("update", "complete"),
    "final": ("append",),
}


def prepared(frame: DataFrame) -> DataFrame:
    """What a function returned, as it is run: Spark's check of output modes then sees every event time.

    Without a watermark, what windows with gaps say of themselves would be an empty promise: nothing is done.
    """
    return with_keys_as_columns(frame) if has_watermark(frame) else frame


def with_keys_as_columns(frame: DataFrame) -> DataFrame:
    """The same with computed grouping keys as columns of their own, as Spark's optimizer makes them."""
    jvm: Any = frame.sparkSession._jvm
    analyzed = _analyzed(frame)
    rule = _scala_object(jvm.org.apache.spark.sql.catalyst.optimizer, "PullOutGroupingExpressions")
    pulled = rule.apply(analyzed)
    if pulled.fastEquals(analyzed):
        return frame
    dataset = _scala_object(jvm.org.apache.spark.sql.classic, "Dataset")
    return DataFrame(dataset.ofRows(frame.sparkSession._jsparkSession, pulled), frame.sparkSession)


def choose_mode(
    frame: DataFrame, wanted: Emit | None = None, *, subject: str = "the function", complete: bool = True
) -> Mode:
    """The output mode for a frame, which has been through `prepared`; refuses what Spark refuses.

    Without a wish it is update where Spark can, else append, else complete (unless that is of no use to the
    output: complete=False). "updates" wants to see windows while they are open, "final" only when closed.
    """
    if not frame.isStreaming:
        raise ApplicationInvalid(
            "run",
            subject,
            "what it returns does not follow a stream",
            "Return a DataFrame that is made from the function's inputs.",
        )
    if any(_is_session_alone(node) for node in _nodes(frame)):
        raise ApplicationInvalid(
            "run",
            subject,
            "Spark has no sessions over all events together",
            "Group by a column besides the session.",
        )
    if any(_is_second_watermark(node) for node in _nodes(frame)):
        raise ApplicationInvalid(
            "run",
            subject,
            "it sets an event time where there is one already, and Spark runs no query with two of them in a row",
            "Declare the stream without time=..., or leave hw.event_time out.",
        )
    refusals: dict[Mode, str] = {}
    for mode in _CANDIDATES[wanted]:
        if mode == "complete" and not complete:
            continue
        refusal = _refusal(frame, mode)
        if refusal is None:
            return mode
        refusals[mode] = refusal
    raise ApplicationInvalid("run", subject, _cause(refusals), _advice(frame, refusals))


def has_watermark(frame: DataFrame) -> bool:
    """Whether any input of the frame has an event time."""
    return any(node.nodeName() == _WATERMARK for node in _nodes(frame))


def _nodes(frame: DataFrame) -> Iterator[Any]:
    """The operators of the frame, from its result to its inputs."""
    return _within(_analyzed(frame))


def _within(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(number) for number in range(children.size())]


def _is_session_alone(node: Any) -> bool:
    """Sessions of everything together: Spark notices only when it runs."""
    if node.nodeName() != "Aggregate" or node.groupingExpressions().size() != 1:
        return False
    key = node.groupingExpressions().apply(0)
    return key.getClass().getSimpleName() == "AttributeReference" and bool(
        key.metadata().contains("spark.sessionWindow")
    )


def _is_second_watermark(node: Any) -> bool:
    """A watermark above another one: Spark notices only when it runs."""
    if node.nodeName() != _WATERMARK:
        return False
    return any(each.nodeName() == _WATERMARK for each in _within(node.child()))


def _refusal(frame: DataFrame, mode: Mode) -> str | None:
    """Why Spark will not run the frame in this mode."""
    jvm: Any = frame.sparkSession._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    try:
        checker.checkForStreaming(_analyzed(frame), output)
    except AnalysisException as error:
        return sentence(error)
    return None


def _cause(refusals: dict[Mode, str]) -> str:
    reasons = list(dict.fromkeys(refusals.values()))
    if len(reasons) == 1:
        return f"Spark refuses it: {reasons[0]}"
    return "Spark refuses it in every mode: " + "; ".join(f"{mode}: {why}" for mode, why in refusals.items())


def _advice(frame: DataFrame, refusals: dict[Mode, str]) -> str:
    reasons = " ".join(refusals.values())
    if "Distinct aggregations" in reasons:
        return (
            "Use F.size(F.collect_set(...)) or F.approx_count_distinct(...) instead of a distinct aggregate."
        )
    if "without watermark" in reasons and not has_watermark(frame):
        return "Give the stream an event time (time=..., lateness=...) and group by a window over it."
    if "without watermark" in reasons:
        return "Group by a window over the event time, so that Spark knows when a group is finished."
    if "session window" in reasons:
        return "Say emit='final': Spark shows a session when it is closed."
    if "Sorting" in reasons:
        return "Leave the order to who reads the result, or use F.max_by(value, order, k) for the first k."
    return "Take the operator out, or split the function in two with a topic between them."


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")

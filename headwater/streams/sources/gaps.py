"""Records that a pipeline never saw because retention took them first: how many, and the error for it."""

import re

from headwater.client.bare_requests import EARLIEST
from headwater.errors import HeadwaterError, RecordsMissed, UnknownTopic
from headwater.streams.sources.positions import Place, flat
from headwater.streams.sources.reading import fetcher_of, log_shrunk, records_missed
from headwater.streams.sources.topic_read import Offsets, TopicRead

# An error of ours in the text of one of Spark's, which has been through a Python worker.
_OURS = re.compile(r"headwater\.errors\.(RecordsMissed|UnknownTopic): cannot (.*)")


def missed(read: TopicRead, start: Offsets, end: Offsets) -> dict[Place, int]:
    """How many offsets of a batch's range are not in the log any more, of each partition that lost some.

    To be asked when the batch is done: what retention takes between the reading and this question is counted
    as well. Offsets that compaction or a rolled back transaction left empty are not missed.
    """
    begin, stop = flat(start), flat(end)
    known = [place for place in stop if place in begin]
    earliest = fetcher_of(read).offsets(known, EARLIEST) if known else {}
    lost = {place: min(earliest[place], stop[place]) - begin[place] for place in known}
    return {place: count for place, count in lost.items() if count > 0}


def in_words(error: BaseException, read: TopicRead, start: Offsets | None = None) -> HeadwaterError | None:
    """Our error for a query that ended because records are missing; None when it ended for another reason.

    ``start`` is where the batch began: of use for the number of records when Spark's connector has read.
    """
    text = str(error)
    found = _OURS.search(text)
    if found is not None:
        return _again(found[1], found[2].splitlines()[0])
    if "KAFKA_DATA_LOSS" not in text and "data may have been lost" not in text.lower():
        return None
    begin = flat(start or {})
    places = [place for place in begin if place in set(fetcher_of(read).partitions(read.topics))]
    ends = fetcher_of(read).ends(places)
    lost = {place: ends[place][0] - begin[place] for place in places if ends[place][0] > begin[place]}
    if lost:
        return records_missed(lost)
    for place in places:
        if ends[place][1] < begin[place]:
            return log_shrunk(place, begin[place], ends[place][1])
    return RecordsMissed("read on in", read.subject, "records were removed before they were read")


def _again(kind: str, told: str) -> HeadwaterError:
    """The error that a worker raised, from its text, of which one sentence is the cause."""
    operation_and_subject, _, rest = told.partition(": ")
    cause = rest.split(". ")[0]
    operation, _, subject = operation_and_subject.rpartition(" ")
    return (RecordsMissed if kind == "RecordsMissed" else UnknownTopic)(operation, subject, cause)

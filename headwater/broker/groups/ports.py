"""What the group coordinator needs of the rest of the broker, and nothing more."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Protocol


class Journal(Protocol):
    """The log that groups are rebuilt from: the topic ``__consumer_offsets``."""

    async def append(
        self,
        group_id: str,
        records: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Append keys and values (None: a tombstone) as one batch; return when they are durable.

        Calls for one group must reach its partition in the order in which they were made. With ``producer``
        (its id and epoch) the batch is part of that producer's transaction. Raises a ``HeadwaterError`` when
        nothing was written.
        """


class Topics(Protocol):
    """The topics there are, as the broker knows them at this moment."""

    def names(self) -> Iterable[str]: ...

    def partition_count(self, topic: str) -> int | None: ...

    def topic_id(self, topic: str) -> uuid.UUID | None: ...

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...

    def is_internal(self, topic: str) -> bool: ...

"""What a script runs with: requests to one broker, and a transcript of the answers."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from headwater.log.batch import read_header, split
from headwater.log.records import build_batch, read_control, read_records
from tests.broker.wire_client import Answer, Closed, WireClient

Script = Callable[["Run"], None]
SCRIPTS: dict[str, Script] = {}

# Answers that ask the client to come back: steps do, unless they are about this very answer.
PASSING = {
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "coordinator_not_available",
    "not_coordinator",
}
PATIENCE = 30.0

# Texts are ours: they say more than Kafka's, and are there where Kafka has none.
_IGNORED = {"throttle_time", "error_message", "batch_index_error_message"}
_NUMBERS_THAT_DIFFER = {"total_bytes", "usable_bytes", "partition_size", "size", "finalized_features_epoch"}
_TIMES = {
    "last_timestamp",
    "log_append_time",
    "log_append_time_ms",
    "transaction_start_time",
    "transaction_start_time_ms",
}
# Kafka answers some lists in the order of its hash tables.
_ORDER_BY = (
    "name",
    "topic",
    "partition_index",
    "partition",
    "index",
    "producer_id",
    "resource_type",
    "resource_name",
    "user",
    "entity_type",
    "entity_name",
    "entity",
    "key",
    "mechanism",
)
_NODES = {"node_id", "leader_id", "controller_id", "broker_id"}


def script(function: Script) -> Script:
    """Register a script under its name."""
    SCRIPTS[function.__name__] = function
    return function


@dataclass
class Run:
    """One run of a script against one broker."""

    port: int
    is_patient: bool = False  # with a broker that tells before it is so
    steps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self._clients: dict[str, WireClient] = {}
        self._suffix = f".{uuid.uuid4().hex[:12]}"
        self._producers: dict[int, str] = {}
        self._topics: dict[uuid.UUID, str] = {}

    def close(self) -> None:
        self._stack.close()

    # -- names ------------------------------------------------------------------------------------

    def name(self, base: str) -> str:
        """A name that no other run uses; the transcript has it without what makes it so."""
        return base + self._suffix

    def topic_id(self, base: str) -> uuid.UUID:
        """The id of a topic that this run made."""
        answer = self.client().call(
            "metadata", 12, topics=[{"name": self.name(base)}], allow_auto_topic_creation=False
        )
        topic_id = answer["topics"][0]["topic_id"]
        assert isinstance(topic_id, uuid.UUID)
        self._topics[topic_id] = f"id of {base}"
        return topic_id

    # -- requests ---------------------------------------------------------------------------------

    def client(self, name: str = "main") -> WireClient:
        """A connection by that name, made when first used or when the last one of the name was closed."""
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = self._stack.enter_context(WireClient(self.port, timeout=10))
        return client

    def drop(self, name: str = "main") -> None:
        """End a connection."""
        client = self._clients.pop(name, None)
        if client is not None:
            client.close()

    def call(
        self,
        step: str,
        api: str,
        version: int,
        /,
        settle: Iterable[str] = PASSING,
        on: str = "main",
        show: Callable[[Answer], Any] = lambda answer: answer,
        **fields: Any,
    ) -> Answer:
        """Send a request and write down the answer; ``settle``: the errors for which it is sent again."""
        deadline = time.monotonic() + PATIENCE
        passing = set(settle)
        while True:
            try:
                answer = self.client(on).call(api, version, **fields)
            except Closed:
                self.drop(on)
                self.note(step, "connection closed")
                return {}
            except TimeoutError:
                self.drop(on)
                self.note(step, "no answer")
                return {}
            if passing.isdisjoint(_errors(answer)) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        self.note(step, show(answer))
        return answer

    def ask(self, api: str, version: int, /, **fields: Any) -> Answer:
        """A request whose answer is not part of the transcript."""
        return self.client().call(api, version, **fields)

    def note(self, step: str, answer: Any) -> None:
        """Write down something that was seen."""
        self.steps.append({"step": step, "answer": self.same(answer)})

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Ask until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"after {PATIENCE} s still not: {what}")
            time.sleep(0.02)

    def pause(self) -> None:
        """Let the broker take notice of a change: Kafka's answers when the controller has it."""
        if self.is_patient:
            time.sleep(0.4)

    # -- things that most scripts need ------------------------------------------------------------

    def find_coordinators(self) -> None:
        """Wait until there are coordinators: a fresh Kafka makes their topics when first asked for them."""

        def there_is(kind: int) -> bool:
            answer = self.ask("find_coordinator", 4, key_type=kind, coordinator_keys=["somebody"])
            return bool(answer["coordinators"][0]["error_code"] == "none")

        for kind in (0, 1):
            self.wait_for(lambda kind=kind: there_is(kind), "there is a coordinator")  # type: ignore[misc]

    def node(self) -> int:
        """The id of the one node."""
        node = self.ask("metadata", 9, topics=[])["controller_id"]
        assert isinstance(node, int)
        return node

    def topic(self, base: str = "topic", partitions: int = 1, **configs: str) -> str:
        """A topic that takes writes."""
        name = self.name(base)
        named = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        made = self.ask(
            "create_topics",
            5,
            timeout=10_000,
            topics=[{"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": named}],
        )
        assert made["topics"][0]["error_code"] == "none", made
        self.wait_for(lambda: self.is_writable(name, partitions), f"{name} takes writes")
        return name

    def is_writable(self, name: str, partitions: int) -> bool:
        """Whether the partitions have a leader."""
        asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        answer = self.ask("list_offsets", 1, replica_id=-1, topics=[{"name": name, "partitions": asked}])
        return set(_errors(answer)) <= {"none"}

    def producer(
        self, transactional_id: str | None, timeout: int = 60_000, version: int = 4
    ) -> tuple[int, int]:
        """A producer's identity."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(
                "init_producer_id", version, transactional_id=transactional_id, transaction_timeout=timeout
            )
            if answer["error_code"] not in PASSING or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        assert answer["error_code"] == "none", answer
        self._producer(answer["producer_id"])
        return answer["producer_id"], answer["producer_epoch"]

    def produce(
        self,
        step: str,
        version: int,
        topic: Any,
        records: bytes | None,
        *,
        partition: int = 0,
        transactional_id: str | None = None,
        acks: int = -1,
        settle: Iterable[str] = PASSING,
        on: str = "main",
    ) -> Answer:
        """Produce to one partition."""
        named = {"topic_id": topic} if version >= 13 else {"name": topic}
        return self.call(
            step,
            "produce",
            version,
            settle=settle,
            on=on,
            transactional_id=transactional_id,
            acks=acks,
            timeout=10_000,
            topic_data=[{**named, "partition_data": [{"index": partition, "records": records}]}],
            show=produced,
        )

    def read(
        self, step: str, topic: str, *, committed: bool = True, offset: int = 0, partition: int = 0
    ) -> list[Any]:
        """Fetch what is there, decode it, and write it down."""
        answer = self.ask(
            "fetch",
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=50 << 20,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": 50 << 20,
                        }
                    ],
                }
            ],
        )
        found = answer["responses"][0]["partitions"][0]
        self.note(step, found)
        return batches(found["records"] or b"")

    # -- making answers comparable ----------------------------------------------------------------

    def same(self, value: Any, key: str = "") -> Any:
        """The answer without what differs from run to run and from broker to broker."""
        if isinstance(value, Mapping):
            same = {name: self.same(item, name) for name, item in value.items() if name not in _IGNORED}
            if same.get("topic") == "__consumer_offsets":
                same["partitions"] = "(one of them)"
            return same
        if isinstance(value, list | tuple):
            items = [self.same(item, key) for item in value]
            if key != "records" and items and all(isinstance(item, dict) for item in items):
                items.sort(key=lambda item: [str(item.get(name)) for name in _ORDER_BY])
            return sorted(items) if key == "partitions" and all(isinstance(i, int) for i in items) else items
        if isinstance(value, uuid.UUID):
            if not value.int:
                return "(no id)"
            return self._topics.setdefault(value, f"topic id {len(self._topics) + 1}")
        if isinstance(value, bytes):
            return [self.same(batch) for batch in batches(value)] if key == "records" else value.hex()
        if isinstance(value, str):
            if key == "host":
                return "(host)"
            if key == "log_dir":
                return "(directory)"
            if key == "cluster_id":
                return "(cluster)" if value else value
            return value.replace(self._suffix, "")
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        return self._same_number(value, key)

    def _same_number(self, value: int, key: str) -> Any:
        if value < 0:
            return value
        if key.endswith("producer_id"):
            return self._producer(value)
        if key in _NODES or key in ("replica_nodes", "isr_nodes"):
            return "(node)"
        if key == "port":
            return "(port)"
        if key == "session_id":
            return "(session)" if value else 0
        if key in _TIMES:
            return "(time)"
        if key in _NUMBERS_THAT_DIFFER:
            return "(number)"
        return value

    def _producer(self, producer_id: int) -> str:
        return self._producers.setdefault(producer_id, f"producer {len(self._producers) + 1}")


def _errors(answer: Any) -> Iterable[str]:
    """All error codes in an answer."""
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if key.endswith("error_code"):
                yield value
            else:
                yield from _errors(value)
    elif isinstance(answer, list):
        for item in answer:
            yield from _errors(item)


def batches(content: bytes) -> list[dict[str, Any]]:
    """What fetched batches hold."""
    found: list[dict[str, Any]] = []
    for position, header in split(content):
        batch = content[position : position + header.size]
        about: dict[str, Any] = {
            "base_offset": header.base_offset,
            "leader_epoch": header.leader_epoch,
            "count": header.record_count,
            "attributes": header.attributes,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "sequence": header.base_sequence,
        }
        if header.is_control:
            control = read_control(batch)
            about["marker"] = None if control is None else ("abort", "commit")[control.kind]
            about["coordinator_epoch"] = None if control is None else control.coordinator_epoch
        else:
            about["values"] = [
                None if record.value is None else record.value.decode("utf-8", "replace")
                for record in read_records(batch)
            ]
        found.append(about)
    return found


def produced(answer: Answer) -> Any:
    """A Produce answer without the log starts of what was refused: Kafka tells it for some errors only."""
    for topic in answer["responses"]:
        for partition in topic["partition_responses"]:
            if partition["error_code"] != "none":
                partition.pop("log_start_offset", None)
    return answer["responses"]


def batch(
    *values: str | None,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    key: bytes | None = b"k",
    timestamp: int | None = None,
    codec: int = 0,
) -> bytes:
    """A batch of records with these values."""
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return build_batch(
        [(key, None if value is None else value.encode(), (), now) for value in values],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
        codec=codec,
    )


def run_script(name: str, port: int, is_patient: bool = False) -> list[dict[str, Any]]:
    """Run the script of that name; its transcript."""
    run = Run(port, is_patient)
    try:
        run.find_coordinators()
        SCRIPTS[name](run)
    finally:
        run.close()
    return run.steps


def differences(expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where two transcripts differ, in words."""
    lines: list[str] = []
    for number in range(max(len(expected), len(found))):
        left = expected[number] if number < len(expected) else {"step": "(nothing)", "answer": None}
        right = found[number] if number < len(found) else {"step": "(nothing)", "answer": None}
        if left["step"] != right["step"]:
            lines.append(f"step {number}: {left['step']!r} expected, {right['step']!r} found")
            continue
        lines += [f"{left['step']}: {line}" for line in _compare("", left["answer"], right["answer"])]
    return lines


def _compare(path: str, left: Any, right: Any) -> Iterable[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            yield from _compare(f"{path}.{key}", left.get(key, "(absent)"), right.get(key, "(absent)"))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _compare(f"{path}[{number}]", one, other)
    elif left != right:
        yield f"{path} is {right!r}, Kafka's is {left!r}"


__all__ = ["SCRIPTS", "Run", "batch", "batches", "differences", "read_header", "run_script", "script"]

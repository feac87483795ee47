"""Producer ids whose epochs are used up, as Apache Kafka 4.1.1 was seen to treat them."""

from pathlib import Path

from headwater.broker.journal import TRANSACTIONS_TOPIC
from headwater.broker.transactions.records import TransactionState, encode_key, encode_value
from headwater.log.batch import read_header
from headwater.log.directory import DataDirectory
from headwater.log.partition import now_ms
from headwater.log.records import build_batch
from tests.broker.conformance.exhaustion import CASES, NAME, NEARLY_ALL, epochs_that_run_out
from tests.broker.conformance.script import Run, differences
from tests.broker.conformance.seen import as_seen, read_seen
from tests.broker.conformance.transactional import Identity
from tests.support.servers import Headwater


def write_worn_out(data: Path, states: dict[str, TransactionState]) -> None:
    """A data directory that knows these transactional ids."""
    directory = DataDirectory(data)
    topic = directory.create_topic(TRANSACTIONS_TOPIC, 1, {"cleanup.policy": "compact"})
    records = [(encode_key(name), encode_value(state), (), now_ms()) for name, state in states.items()]
    batch = build_batch(records)
    topic.partitions[0].append(batch, read_header(batch), now_ms())
    directory.close()
    (data / "producer-ids").write_text("1000\n")


def test_headwater_goes_on_with_another_producer_id(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run = Run(0)
    names = [run.name(case) for case in CASES]
    write_worn_out(
        data,
        {
            name: TransactionState(number, NEARLY_ALL - 1, 60_000, updated_ms=now_ms())
            for number, name in enumerate(names)
        },
    )

    def worn_out(run: Run, transactional_id: str) -> Identity:
        identity = run.producer(transactional_id)
        assert identity == (names.index(transactional_id), NEARLY_ALL)
        return identity

    with Headwater(data, environment={"HEADWATER_CHECK_MESSAGES": "1"}) as server:
        run.port = server.port
        epochs_that_run_out(run, worn_out)
        run.close()
        assert differences(read_seen(NAME), as_seen(run.steps)) == []

"""Producer ids, each of which is given out once."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.transactions.producer_ids import MARGIN, ProducerIds
from headwater.errors import StorageFailed
from headwater.log.producer_ids import (
    LARGEST_BELIEVED,
    LARGEST_GIVEN_OUT,
    PRODUCER_IDS,
    read_next_id,
    written_next_id,
)
from tests.broker.conformance.script import batch
from tests.broker.wire_client import WireClient
from tests.support.servers import Headwater

SEALED = written_next_id(1000)


def taken(path: Path, in_use: int = -1) -> int:
    return asyncio.run(ProducerIds(path, lambda: in_use).take())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"many\n",
        b"\xff\xff",
        b"9" * 40,
        b"9" * 9999,
        SEALED.replace(b"1", b"0"),
        SEALED.replace(b"x", b"\xff"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_given_out(tmp_path: Path, content: bytes) -> None:
    """Another id than the next would be one that somebody has."""
    path = tmp_path / PRODUCER_IDS
    path.write_bytes(content)
    with pytest.raises(StorageFailed, match=rf"{path}: it is damaged: .*Restore the file"):
        taken(path)
    assert path.read_bytes() == content


def test_any_bit_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / PRODUCER_IDS
    for position in range(len(SEALED) * 8):
        content = bytearray(SEALED)
        content[position // 8] ^= 1 << position % 8
        path.write_bytes(content)
        try:
            assert taken(path) == 1000, content  # in the name of the checksum: then it is a file without one
        except StorageFailed:
            pass


def test_a_file_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / PRODUCER_IDS
    path.write_text("3000\n")
    assert taken(path) == 3000
    assert read_next_id(path.read_bytes()) == 4000
    assert taken(path) == 4000


def test_ids_go_on_above_those_in_use(tmp_path: Path) -> None:
    path = tmp_path / PRODUCER_IDS
    path.write_text("0000\n")
    assert taken(path, in_use=1500) == 1501
    assert taken(path, in_use=1501) == 2501
    path.unlink()
    assert taken(path, in_use=2501) == 2502 + MARGIN
    path.unlink()
    assert taken(path) == 0, "nobody has written anything"


def write(server: Headwater, value: str) -> tuple[str, int]:
    """Write as a new idempotent producer does."""
    with WireClient(server.port) as client:
        identity = client.call(
            "init_producer_id",
            4,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        return produce(client, value, identity["producer_id"])


def produce(client: WireClient, value: str, producer_id: int) -> tuple[str, int]:
    records = batch(value, producer=(producer_id, 0), sequence=0)
    answer = client.call(
        "produce",
        9,
        transactional_id=None,
        acks=-1,
        timeout=9000,
        topic_data=[{"name": "one", "partition_data": [{"index": 0, "records": records}]}],
    )
    found = answer["responses"][0]["partition_responses"][0]
    return found["error_code"], found["base_offset"]


@pytest.mark.parametrize("left", [b"0000\n", None], ids=["damaged", "lost"])
def test_nobody_is_taken_for_another_producer(tmp_path: Path, left: bytes | None) -> None:
    """Its records would be taken for repetitions: acknowledged, and not written."""
    with Headwater(tmp_path / "data") as server:
        with WireClient(server.port) as client:
            topic = {"name": "one", "num_partitions": 1, "replication_factor": 1}
            client.call("create_topics", 5, topics=[topic], timeout=9000)
        assert write(server, "a") == ("none", 0)
        server.stop()
        path = tmp_path / "data" / PRODUCER_IDS
        path.unlink()
        if left is not None:
            path.write_bytes(left)
        server.start()
        assert write(server, "b") == ("none", 1)


def test_a_client_makes_up_an_id(tmp_path: Path) -> None:
    """Its records are taken, and there are ids for others after the next starts."""
    made_up = (LARGEST_GIVEN_OUT - 1, LARGEST_BELIEVED, LARGEST_BELIEVED - 1)
    with Headwater(tmp_path / "data") as server:
        with WireClient(server.port) as client:
            topic = {"name": "one", "num_partitions": 1, "replication_factor": 1}
            client.call("create_topics", 5, topics=[topic], timeout=9000)
        for number, producer_id in enumerate(made_up):
            with WireClient(server.port) as client:
                assert produce(client, "made up", producer_id) == ("none", 2 * number)
            server.stop()
            server.start()
            assert write(server, "another's") == ("none", 2 * number + 1)

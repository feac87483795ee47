"""Producer ids, each of which is given out once."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.transactions.producer_ids import ProducerIds
from headwater.errors import StorageFailed


@pytest.mark.parametrize("content", [b"", b"many\n", b"\xff\xff"])
def test_a_damaged_file_is_named_and_nothing_given_out(tmp_path: Path, content: bytes) -> None:
    """Another id than the next would be one that somebody has."""
    path = tmp_path / "producer-ids"
    path.write_bytes(content)
    with pytest.raises(StorageFailed, match=rf"{path}: it is damaged: it holds no number. Restore the file"):
        asyncio.run(ProducerIds(path).take())
    assert path.read_bytes() == content

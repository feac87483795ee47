"""`headwater log check`: what a broker left on disk, verified without it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client.admin import Admin
from headwater.client.connection import Connection
from headwater.client.writer import Writer
from tests.cli.conftest import run
from tests.support.servers import Headwater


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that a broker has written and closed."""
    data = tmp_path_factory.mktemp("written") / "data"
    with Headwater(data=data) as server:
        connection = Connection(server.bootstrap)
        Admin(connection).create_topic("orders", 2)
        for codec in ("none", "lz4"):
            with Writer(connection, compression=codec) as writer:
                for number in range(2000):
                    writer.write("orders", f"value {number}" * 10, partition=number % 2)
    return data


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Iterator[Path]:
    copy = tmp_path / "data"
    shutil.copytree(written, copy)
    yield copy


def test_a_healthy_directory(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    result = run("log", "check", str(data))
    assert (result.code, result.out, result.err) == (0, "", f"{data}: no fault found\n")
    assert run("log", "check", str(data), "--quick", "--json").code == 0
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_flipped_byte_is_named_with_its_file(data: Path) -> None:
    log = next((data / "orders-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    result = run("log", "check", str(data))
    assert result.code == 1
    (row,) = [row for row in result.rows if row[2] == "error"]
    assert row[0] == str(log) and row[1].isdigit()
    assert result.err.startswith(f"{data}: 1 fault")
    (finding,) = [
        found for found in run("log", "check", str(data), "--json").objects if found["severity"] == "error"
    ]
    assert finding == {
        "path": str(log), "position": int(row[1]), "severity": "error", "kind": row[3], "message": row[4],
    }  # fmt: skip


def test_a_torn_end_is_a_warning(data: Path) -> None:
    log = next((data / "orders-1").glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 10)
    result = run("log", "check", str(data))
    assert {row[2] for row in result.rows if row[0] == str(log)} == {"warning"}
    assert "warning" in result.err


def test_the_data_directory_comes_from_the_settings(data: Path, tmp_path: Path) -> None:
    assert run("log", "check", env={"HEADWATER_DATA": str(data)}).code == 0
    (tmp_path / "headwater.toml").write_text('data = "data"')
    result = run("log", "check", cwd=tmp_path)
    assert (result.code, result.err) == (0, "data: no fault found\n")


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    for path, cause in (
        (tmp_path / "missing", "there is no such directory"),
        (tmp_path, "it holds no partitions"),
    ):
        result = run("log", "check", str(path))
        assert (result.code, len(result.err.splitlines())) == (1, 1)
        assert f"cannot check {path}: {cause}" in result.err

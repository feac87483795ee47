"""Open files within a limit, and small files that are replaced whole."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.log.files import (
    CAN_SYNC_FILE_SYSTEM,
    OpenFiles,
    raise_open_file_limit,
    replace_file,
    sync_directories,
    sync_file_system,
    write_file,
)


def test_a_file_in_use_stays_open_when_the_cache_lets_it_go(folder: Path) -> None:
    files = OpenFiles(capacity=2)
    held = files.get(str(folder / "a"), create=True)
    for name in "bcdef":
        files.get(str(folder / name), create=True)
    assert len(files) == 2
    os.pwrite(held.fileno(), b"still here", 0)
    assert (folder / "a").read_bytes() == b"still here"


def test_the_least_recently_used_goes_first(folder: Path) -> None:
    files = OpenFiles(capacity=2)
    first = files.get(str(folder / "a"), create=True)
    files.get(str(folder / "b"), create=True)
    assert files.get(str(folder / "a")) is first
    files.get(str(folder / "c"), create=True)
    assert files.get(str(folder / "a")) is first
    assert len(files) == 2


def test_open_files_are_bounded_by_the_cache(folder: Path) -> None:
    files = OpenFiles(capacity=10)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        files.get(str(folder / str(number)), create=True)
    assert len(os.listdir("/proc/self/fd")) <= before + 10
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenFiles().get(str(folder / "missing"))


def test_a_forgotten_path_is_opened_anew(folder: Path) -> None:
    files = OpenFiles()
    path = folder / "a"
    path.write_bytes(b"old")
    old = files.get(str(path))
    (folder / "b").write_bytes(b"new")
    os.replace(folder / "b", path)
    assert files.get(str(path)) is old
    files.forget(str(path))
    assert os.pread(files.get(str(path)).fileno(), 9, 0) == b"new"
    assert os.pread(old.fileno(), 9, 0) == b"old", "a read under way is not disturbed"


def test_who_opens_during_a_replacement_does_not_leave_the_old_file_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread opens the old file, the path is replaced and forgotten, then the thread would cache it."""
    files = OpenFiles()
    path = folder / "a"
    path.write_bytes(b"old")
    (folder / "b").write_bytes(b"new")
    is_open, is_replaced = threading.Event(), threading.Event()
    real_open = os.open

    def slow_open(*arguments: int | str) -> int:
        descriptor = real_open(*arguments)  # type: ignore[arg-type]
        if threading.current_thread() is not threading.main_thread():
            is_open.set()
            assert is_replaced.wait(10)
        return descriptor

    monkeypatch.setattr(os, "open", slow_open)
    found: list[io.FileIO] = []
    reader = threading.Thread(target=lambda: found.append(files.get(str(path))))
    reader.start()
    assert is_open.wait(10)
    os.replace(folder / "b", path)
    files.forget(str(path))
    is_replaced.set()
    reader.join(10)
    assert os.pread(found[0].fileno(), 9, 0) == b"old"
    assert os.pread(files.get(str(path)).fileno(), 9, 0) == b"new"


def test_threads_share_a_file(folder: Path) -> None:
    files = OpenFiles()
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(files.get(str(folder / "a"), create=True)))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files) == 1
    assert files.get(str(folder / "a")) in got


def test_a_file_is_replaced_whole(folder: Path) -> None:
    path = folder / "small.json"
    replace_file(path, b"one")
    replace_file(path, b"two" * 100_000)
    assert path.read_bytes() == b"two" * 100_000
    assert [each.name for each in folder.iterdir()] == ["small.json"]


LIMITED = """
import resource, sys
from pathlib import Path
from headwater.log.files import replace_file, write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write, name in ((replace_file, "file"), (write_file, "other")):
    try:
        write(Path(sys.argv[1]) / name, b"x" * 5000)
    except OSError as error:
        print(error.errno)
"""


def test_without_room_the_old_file_stays(folder: Path) -> None:
    (folder / "file").write_bytes(b"old")
    command = [sys.executable, "-c", LIMITED, str(folder)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["27", "27"]  # EFBIG
    assert [(each.name, each.read_bytes()) for each in folder.iterdir()] == [("file", b"old")]


def test_write_file_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    replace_me = folder / "file"
    replace_me.write_bytes(b"old")
    with pytest.raises(OSError, match="No space"):
        replace_file(replace_me, b"new")
    assert replace_me.read_bytes() == b"old"
    with pytest.raises(OSError, match="No space"):
        write_file(folder / "other", b"new")
    assert [each.name for each in folder.iterdir()] == ["file"]


def test_the_limit_of_open_files_only_rises() -> None:
    assert raise_open_file_limit() >= 256
    assert raise_open_file_limit() == raise_open_file_limit()


def test_syncing_directories_of_any_number(folder: Path) -> None:
    sync_directories([])
    for count in (1, 4, 20):
        paths = [folder / f"{count}-{number}" for number in range(count)]
        for path in paths:
            path.mkdir()
        sync_directories(paths)


@pytest.mark.skipif(not CAN_SYNC_FILE_SYSTEM, reason="syncfs tells of errors from Linux 5.8 on")
def test_syncing_a_file_system_tells_of_errors(folder: Path) -> None:
    with open(folder / "a", "wb") as file:
        sync_file_system(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync_file_system(file_descriptor_of_nothing())


def file_descriptor_of_nothing() -> int:
    descriptor = os.open("/", os.O_RDONLY)
    os.close(descriptor)
    return descriptor

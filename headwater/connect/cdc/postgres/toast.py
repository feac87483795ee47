"""Values that are stored apart (TOAST) and are not in the stream when an update leaves them as they were.

The cache keeps the values of large rows as they went by, on disk, each under the position of its change: a look-up
finds the newest version before a position, also when the stream is read again from an earlier one after a crash.
It knows up to where it has seen the stream. When it has missed a part (it was made on another machine, the
machine crashed, it grew too large) it begins empty, and the row is read from the database instead.
"""

import hashlib
import marshal
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from struct import Struct

import lmdb

_version = Struct(">QI").pack
_SEEN = b"seen"
_MAKER = b"maker"
MOST_BYTES = 4 << 30
_GONE = b""


def _maker() -> bytes:
    """Nothing is synced to disk: after a crash of the machine, the cache is not to be trusted."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        boot = b"unknown"
    return b"2 %d.%d %b" % (sys.version_info[0], sys.version_info[1], boot)


class ValueCache:
    """Large values by table and key, in versions.

    >>> import tempfile
    >>> cache = ValueCache(Path(tempfile.mkdtemp()), begin=(10, 0))
    >>> cache.put(b"t", b"1", 10, 1, {"doc": b"old"})
    >>> cache.put(b"t", b"1", 30, 1, {"doc": b"new"})
    >>> cache.get(b"t", b"1", 20, 5), cache.get(b"t", b"1", 40, 1), cache.get(b"t", b"2", 40, 1)
    ({'doc': b'old'}, {'doc': b'new'}, None)
    """

    def __init__(self, directory: Path, begin: tuple[int, int], most_bytes: int = MOST_BYTES) -> None:
        self._directory, self._most = directory, most_bytes
        self._older: deque[tuple[int, bytes, bytes]] = (
            deque()
        )  # what can be forgotten when a position is durable
        self._environment: lmdb.Environment | None = None
        self._transaction: lmdb.Transaction | None = None
        self._open(begin)

    def _open(self, begin: tuple[int, int]) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._environment = self._opened()
            with self._environment.begin() as transaction:
                seen = transaction.get(_SEEN)
                fits = (
                    transaction.get(_MAKER) == _maker() and seen is not None and marshal.loads(seen) >= begin
                )
            if not fits:
                self._begin_anew(begin)
        except (lmdb.Error, ValueError, EOFError, TypeError):
            self._begin_anew(begin)

    def _opened(self) -> lmdb.Environment:
        return lmdb.open(
            str(self._directory), map_size=self._most, sync=False, metasync=False, max_dbs=0, max_readers=8
        )

    def _begin_anew(self, begin: tuple[int, int]) -> None:
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._older.clear()
        self._environment = self._opened()
        with self._environment.begin(write=True) as transaction:
            transaction.put(_MAKER, _maker())
            transaction.put(_SEEN, marshal.dumps(begin))

    def _writing(self) -> lmdb.Transaction:
        if self._transaction is None:
            assert self._environment is not None
            self._transaction = self._environment.begin(write=True)
        return self._transaction

    def put(self, table: bytes, key: bytes, at: int, number: int, values: Mapping[str, bytes]) -> None:
        """The values of a row after a change: the commit's position, and the number of the change in it."""
        self._put(table, key, at, number, marshal.dumps(dict(values)))

    def gone(self, table: bytes, key: bytes, at: int, number: int) -> None:
        """The row is not there any more."""
        prefix = _prefix(table, key)
        with self._writing().cursor() as cursor:
            known = cursor.set_range(prefix) and bytes(cursor.key())[: len(prefix)] == prefix
        if known:
            self._put(table, key, at, number, _GONE)

    def _put(self, table: bytes, key: bytes, at: int, number: int, value: bytes) -> None:
        prefix = _prefix(table, key)
        version = _version(at, number)
        try:
            self._writing().put(prefix + version, value)
        except lmdb.MapFullError:
            self._transaction = None
            self._begin_anew((at, number))
            return
        self._older.append((at, prefix, version))

    def get(self, table: bytes, key: bytes, at: int, number: int) -> dict[str, bytes] | None:
        """The values of a row just before a change."""
        prefix = _prefix(table, key)
        with self._writing().cursor() as cursor:
            found = cursor.set_range(prefix + _version(at, number))
            found = cursor.prev() if found else cursor.last()
            if not found or bytes(cursor.key())[: len(prefix)] != prefix:
                return None
            value = bytes(cursor.value())
        if value == _GONE:
            return None
        values: dict[str, bytes] = marshal.loads(value)
        return values

    def seen(self, at: int, number: int) -> None:
        """Everything up to here is in the cache (all that was committed before `at`, and so many changes of the
        next transaction); to be called before what follows from it is made durable."""
        transaction = self._transaction
        if transaction is None:
            assert self._environment is not None
            transaction = self._environment.begin(write=True)
        self._transaction = None
        try:
            transaction.put(_SEEN, marshal.dumps((at, number)))
            transaction.commit()
        except lmdb.MapFullError:
            transaction.abort()
            self._begin_anew((at, number))

    def durable(self, at: int) -> None:
        """The log has everything up to here: of versions before it only the newest is needed."""
        while self._older and self._older[0][0] < at:
            _, prefix, version = self._older.popleft()
            transaction = self._writing()
            stale: list[bytes] = []
            with transaction.cursor() as cursor:
                if not cursor.set_key(prefix + version):
                    continue
                if bytes(cursor.value()) == _GONE:
                    stale.append(prefix + version)
                while cursor.prev() and bytes(cursor.key())[: len(prefix)] == prefix:
                    stale.append(bytes(cursor.key()))
            for key in stale:
                transaction.delete(key)

    def close(self) -> None:
        if self._transaction is not None:
            self._transaction.abort()
            self._transaction = None
        if self._environment is not None:
            self._environment.close()
            self._environment = None


def _prefix(table: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(table + b"\0" + key, digest_size=16).digest()

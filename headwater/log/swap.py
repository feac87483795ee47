"""Putting cleaned segments in the place of old ones: all of a round or, after a crash, none of it.

A round removes tombstones and markers that old segments before them still need, so that a swap of a part of
its segments could bring back what was deleted or aborted. The steps:

1. The cleaned segments are written into the folder ``cleaning`` of the partition's directory and synced, and
   beside them ``plan.json``: which segments each of them replaces. A crash until here throws the folder away.
2. The folder is renamed to ``cleaned``. From here on the swap is completed after a crash, by `finish_swap`.
3. Old files are renamed to ``.deleted``, the log file last, then new ones moved out, the log file last.
   Readers see the old segments until the new ones are in the list; reads under way finish on open files.
4. The directory is synced, then the folder and the ``.deleted`` files are removed.
"""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from headwater.errors import CorruptData, StorageFailed
from headwater.log.files import sync_directory, write_file
from headwater.log.index import ABORTED_SIZE, AbortedTransaction
from headwater.log.partition import PartitionLog
from headwater.log.segment import SEGMENT_SUFFIXES, Segment

WORKING, READY = "cleaning", "cleaned"
_PLAN = "plan.json"


@dataclass(slots=True)
class Replacement:
    """Neighbouring segments and the one that replaces them, if anything is left of them."""

    old: list[Segment]
    new: Segment | None
    end_offset: int


@dataclass(slots=True)
class Swap:
    """The result of a round of cleaning, to be put in place by the partition's own thread."""

    directory: Path
    replacements: list[Replacement]
    cleaned_offset: int  # where the next round's dirty part starts
    aborted: list[AbortedTransaction]  # of which records are left in the new segments
    _removed: list[str] = field(default_factory=list)

    def commit(self) -> None:
        """Step 2. The segments are in the folder ``cleaning``, synced. Runs in any thread."""
        plan = [
            {
                "old": [segment.base_offset for segment in each.old],
                "new": None if each.new is None else each.new.base_offset,
            }
            for each in self.replacements
        ]
        working = self.directory / WORKING
        write_file(working / _PLAN, orjson.dumps(plan))
        sync_directory(working)
        os.rename(working, self.directory / READY)
        sync_directory(self.directory)

    def put_in_place(self, log: PartitionLog) -> bool:
        """Step 3: make the cleaned segments part of the log.

        False if retention has taken one of the old ones: then nothing is changed; another round may follow.
        """
        current = set(log.segments)
        if log.deleted or not all(current.issuperset(each.old) for each in self.replacements):
            return False
        log.swaps += 1
        try:
            for each in self.replacements:
                self._replace(log, each)
        except OSError as error:
            # Half of a round: nobody may write behind it. A restart completes it.
            reason = (error.strerror or str(error)).lower()
            log.failure = StorageFailed("compact", log.name, reason)
            raise log.failure from error
        log.cleaned_offset = max(log.cleaned_offset, self.cleaned_offset)
        end_offset = max((each.end_offset for each in self.replacements), default=0)
        log.producers.cleaned(self.aborted, end_offset, log.start_offset)
        log.swaps += 1
        return True

    def _replace(self, log: PartitionLog, each: Replacement) -> None:
        old = each.old
        for segment in old:
            segment.retired = True
            for suffix in reversed(SEGMENT_SUFFIXES):
                path = segment.path(suffix)
                with contextlib.suppress(FileNotFoundError):
                    os.replace(path, path + ".deleted")
                    self._removed.append(path + ".deleted")
        placed = []
        if each.new is not None:
            _move_out(self.directory, each.new.base_offset)
            placed = [_placed(log, each.new)]
        for segment in (*old, *placed):
            for suffix in SEGMENT_SUFFIXES:
                log.files.forget(segment.path(suffix))
        first = log.segments.index(old[0])
        log.set_segments((*log.segments[:first], *placed, *log.segments[first + len(old) :]))

    def finish(self) -> None:
        """Step 4. Runs in any thread."""
        sync_directory(self.directory)
        _remove_folder(self.directory / READY)
        for path in self._removed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _placed(log: PartitionLog, cleaned: Segment) -> Segment:
    segment = Segment(
        log.files,
        log.directory,
        cleaned.base_offset,
        size=cleaned.size,
        index_size=len(cleaned.offset_index) * cleaned.offset_index.entry.size,
        time_index_size=len(cleaned.time_index) * cleaned.time_index.entry.size,
        aborted_size=len(cleaned.aborted) * ABORTED_SIZE,
        created_ms=cleaned.created_ms,
    )
    segment.max_timestamp = cleaned.max_timestamp
    segment.max_timestamp_offset = cleaned.max_timestamp_offset
    return segment


def _move_out(directory: Path, base_offset: int) -> None:
    for suffix in reversed(SEGMENT_SUFFIXES):
        name = f"{base_offset:020d}{suffix}"
        with contextlib.suppress(FileNotFoundError):
            os.replace(directory / READY / name, directory / name)


def _remove_folder(folder: Path) -> None:
    """The plan goes first: without it, there is nothing to complete."""
    (folder / _PLAN).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def forget_swap(directory: Path) -> None:
    """Clear away what a round has left that was not put in place, and never will be."""
    shutil.rmtree(directory / WORKING, ignore_errors=True)
    if (directory / READY).exists():
        _remove_folder(directory / READY)
        sync_directory(directory)


def finish_swap(directory: Path) -> None:
    """After a crash: complete the swap that was decided, or clear away the one that was not."""
    shutil.rmtree(directory / WORKING, ignore_errors=True)
    ready = directory / READY
    if not ready.is_dir():
        return
    if (ready / _PLAN).exists():
        try:
            plan = orjson.loads((ready / _PLAN).read_bytes())
        except orjson.JSONDecodeError as error:
            raise CorruptData("complete a compaction by", str(ready / _PLAN), str(error)) from None
        for each in plan:
            is_moved = each["new"] is not None and not (ready / f"{each['new']:020d}.log").exists()
            for base_offset in each["old"]:
                if not (is_moved and base_offset == each["new"]):
                    _remove_old(directory, base_offset)
            if each["new"] is not None:
                _move_out(directory, each["new"])
        sync_directory(directory)
    _remove_folder(ready)


def _remove_old(directory: Path, base_offset: int) -> None:
    """The log file goes last: while it is there, the files beside it are its own; then, the new ones."""
    if (directory / f"{base_offset:020d}.log").exists():
        for suffix in reversed(SEGMENT_SUFFIXES):
            (directory / f"{base_offset:020d}{suffix}").unlink(missing_ok=True)

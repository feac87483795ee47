"""Random batches, replays, versions, trims and reopened stores, held against a model in plain Python."""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headwater.errors import StoreFailed, UnknownView
from headwater.views import ViewStore, open_store
from tests.support.postgres import Postgres
from tests.views.words import batch, content, words

WORDS = st.sampled_from(["a", "b", "c", "d", 'e"', "é"])
ROWS = st.lists(st.tuples(WORDS, st.integers(0, 3)), max_size=8)
VERSIONS = st.integers(1, 3)
_schemas = itertools.count(1)


class Version:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.batch: int | None = None
        self.offsets: dict[str, Any] = {}


class StoreMachine(RuleBasedStateMachine):
    """Whatever is done, rows, progress and outbox are those of the model."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.store: ViewStore = open_store(url)
        self.versions: dict[int, Version] = {}
        self.serving: int | None = None
        self.told: dict[str, int] = {}  # what a follower of the outbox knows
        self.number = 0  # the last change it has seen
        self.trimmed = 0

    @initialize()
    def begin(self) -> None:
        self.define(1)

    @rule(version=VERSIONS)
    def define(self, version: int) -> None:
        self.store.define(words(version), f"f{version}")
        self.versions.setdefault(version, Version())
        if self.serving is None:
            self.serving = version

    @precondition(lambda self: self.versions)
    @rule(
        data=st.data(),
        rows=ROWS,
        deleted=st.lists(WORDS, max_size=4),
        ahead=st.integers(-2, 3),
        whole=st.booleans(),
    )
    def apply(
        self, data: st.DataObject, rows: list[tuple[str, int]], deleted: list[str], ahead: int, whole: bool
    ) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        model = self.versions[version]
        number = max(0, (-1 if model.batch is None else model.batch) + ahead)
        offsets = {"t": {"0": number * 10}}
        new = model.batch is None or number > model.batch
        if whole:
            assert self.store.replace("words", version, batch(number, rows, offsets=offsets)) == new
        else:
            assert self.store.apply("words", version, batch(number, rows, deleted, offsets=offsets)) == new
        if new:
            kept = {} if whole else {word: n for word, n in model.rows.items() if word not in deleted}
            model.rows = {**kept, **dict(rows)}
            model.batch, model.offsets = number, offsets

    @precondition(lambda self: self.versions)
    @rule(data=st.data(), clear=st.booleans())
    def restart(self, data: st.DataObject, clear: bool) -> None:
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.store.restart("words", version, clear=clear)
        model = self.versions[version]
        model.batch, model.offsets = None, {}
        if clear:
            model.rows = {}

    @rule(version=VERSIONS)
    def activate(self, version: int) -> None:
        if version not in self.versions:
            with pytest.raises(UnknownView):
                self.store.activate("words", version)
            return
        self.store.activate("words", version)
        self.serving = version

    @rule(version=VERSIONS)
    def drop(self, version: int) -> None:
        if version not in self.versions:
            with pytest.raises(UnknownView):
                self.store.drop("words", version)
        elif version == self.serving and len(self.versions) > 1:
            with pytest.raises(StoreFailed):
                self.store.drop("words", version)
        else:
            self.store.drop("words", version)
            del self.versions[version]
            self.serving = None if version == self.serving else self.serving

    @rule(keep=st.integers(0, 5))
    def trim(self, keep: int) -> None:
        self.follow()
        bound = max(self.trimmed, self.number - keep)
        assert self.store.trim_changes("words", up_to=bound) == bound - self.trimmed
        self.trimmed = bound

    @rule()
    def reopen(self) -> None:
        """A new process: the old one's connections were never closed."""
        self.store = open_store(self.url)

    def follow(self) -> None:
        for change in self.store.changes("words", self.number):
            self.number += 1
            assert change.number == self.number
            if change.row is None:
                gone = [word for word in self.told if change.key == _key(word)]
                assert len(gone) == 1  # only what is there is deleted
                del self.told[gone[0]]
            else:
                assert change.key == _key(change.row["word"])
                assert self.told.get(change.row["word"]) != change.row["n"]  # only changes are told
                self.told[change.row["word"]] = change.row["n"]

    @invariant()
    def equals_the_model(self) -> None:
        if not self.number and not self.versions:
            return
        self.follow()
        shown = {} if self.serving is None else self.versions[self.serving].rows
        assert self.told == shown
        (view,) = self.store.views()
        assert (view.serving, view.last_change) == (self.serving, self.number)
        assert [version.version for version in view.versions] == sorted(self.versions)
        for version, model in self.versions.items():
            assert content(self.store, version) == model.rows
            progress = self.store.progress("words", version)
            assert (progress.batch, progress.offsets, progress.rows) == (
                model.batch,
                model.offsets,
                len(model.rows),
            )
        if self.serving is not None:
            assert content(self.store) == shown

    def teardown(self) -> None:
        self.store.close()


def _key(word: str) -> str:
    return '{"word":"' + word.replace('"', '\\"') + '"}'


def _settings(examples: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=25, deadline=None,
                    suppress_health_check=list(HealthCheck), print_blob=True)  # fmt: skip


def test_sqlite_equals_the_model(tmp_path: Path) -> None:
    def machine() -> StoreMachine:
        directory = TemporaryDirectory(dir=tmp_path)
        made = StoreMachine(f"sqlite:///{directory.name}/views.db")
        made.directory = directory  # type: ignore[attr-defined]  # lives as long as the machine
        return made

    run_state_machine_as_test(machine, settings=_settings(40))  # type: ignore[arg-type]


def test_postgresql_equals_the_model(postgres: Postgres) -> None:
    run_state_machine_as_test(
        lambda: StoreMachine(postgres.url(f"model_{next(_schemas)}")),  # type: ignore[arg-type]
        settings=_settings(15),
    )

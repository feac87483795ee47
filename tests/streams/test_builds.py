"""Which build of a view an application goes on with."""

import json
from typing import Literal

import pytest

from headwater.errors import ViewChanged
from headwater.streams.engine.builds import choose_build, needs_rebuild
from headwater.streams.engine.fingerprint import with_application
from headwater.views.model import Column, Progress, VersionInfo, ViewInfo, ViewSchema


def mark(version: int, plan: str = "p", schema: str = "s", spark: str = "4.3.0") -> str:
    return json.dumps({"version": version, "spark": spark, "plan": plan, "schema": schema})


def built(number: int, fingerprint: str, batch: int | None = 7) -> VersionInfo:
    state: Literal["building", "serving"] = "serving"
    schema = ViewSchema("words", number, (Column("word", "string"),), ("word",))
    return VersionInfo(schema, fingerprint, state, Progress(number, batch, {}, None, None, 0))


def view(*versions: VersionInfo) -> ViewInfo:
    return ViewInfo("words", versions[0].version if versions else None, 0, versions)


def test_a_view_that_nobody_has_built() -> None:
    for known in (None, view()):
        build = choose_build("words", 3, mark(3), known)
        assert (build.number, build.reason) == (1, "first")


def test_the_newest_build_goes_on_when_its_definition_is_the_same() -> None:
    build = choose_build("words", 1, mark(1), view(built(4, mark(1)), built(5, mark(1))))
    assert (build.number, build.reason) == (5, "same")


def test_a_new_version_is_the_next_build() -> None:
    build = choose_build("words", 2, mark(2, "other"), view(built(4, mark(1))))
    assert (build.number, build.reason, build.fingerprint) == (5, "new version", mark(2, "other"))


@pytest.mark.parametrize(
    ("version", "fingerprint", "why", "next_step"),
    [
        (1, mark(1, "other"), "its definition is not the one that version 1 was built with", "version=2"),
        (1, mark(1, schema="other"), "its definition is not the one", "version=2"),
    ],
)
def test_a_changed_definition_is_refused(version: int, fingerprint: str, why: str, next_step: str) -> None:
    with pytest.raises(ViewChanged) as refused:
        choose_build("words", version, fingerprint, view(built(1, mark(1))))
    assert why in str(refused.value) and next_step in str(refused.value)


def test_an_older_version_is_refused() -> None:
    with pytest.raises(ViewChanged, match=r"version 1 is declared, and version 2 was built .*version=3"):
        choose_build("words", 1, mark(1), view(built(2, mark(2))))


def test_plans_of_another_spark_are_not_compared() -> None:
    older = mark(1, "written otherwise", spark="4.2.0")
    build = choose_build("words", 1, mark(1), view(built(1, older)))
    assert (build.reason, build.fingerprint) == ("same", older)
    with pytest.raises(ViewChanged):
        choose_build("words", 1, mark(1, schema="other"), view(built(1, older)))


def test_a_view_of_another_application_is_left_alone() -> None:
    own, other = (with_application(mark(1), name) for name in ("shop", "stock"))
    build = choose_build("words", 1, own, view(built(4, own)))
    assert (build.number, build.reason, build.fingerprint) == (4, "same", own)
    for version in (1, 2):
        declared = with_application(mark(version, "other"), "shop")
        with pytest.raises(ViewChanged) as refused:
            choose_build("words", version, declared, view(built(4, other)))
        assert "the view store has a view of that name, of the application stock" in str(refused.value)


def test_a_view_from_before_applications_were_noted_goes_on_as_that_of_who_starts_first() -> None:
    own = with_application(mark(1), "shop")
    build = choose_build("words", 1, own, view(built(4, mark(1))))
    assert (build.number, build.reason, build.fingerprint) == (4, "same", own)


@pytest.mark.parametrize(
    ("batch", "finished", "planned", "reason"),
    [
        (7, 7, 7, None),  # as it should be
        (7, 7, 8, None),  # killed before the store had it
        (8, 7, 8, None),  # killed after that
        (0, None, 0, None),  # the same, in the first batch
        (None, None, 0, None),
        (None, None, None, None),
        (8, 7, 7, "checkpoint lost"),
        (9, 7, 9, "checkpoint lost"),
        (7, None, None, "checkpoint lost"),
        (0, None, None, "checkpoint lost"),
        (6, 7, 7, "store lost"),
        (None, 0, 0, "store lost"),
    ],
)
def test_checkpoint_and_store_have_to_be_of_one_history(
    batch: int | None, finished: int | None, planned: int | None, reason: str | None
) -> None:
    assert needs_rebuild(built(1, mark(1), batch), finished, planned) == reason

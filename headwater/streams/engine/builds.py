"""Builds of a view: its versions, and rebuilds of one version, each with a checkpoint and a table of its own.

A build is a number in the view store. Its fingerprint says which version of the definition it was made by.
"""

from dataclasses import dataclass
from typing import Literal

from headwater.errors import ViewChanged
from headwater.streams.engine.fingerprint import (
    application_of,
    kind_of,
    same_definition,
    version_of,
    with_application,
)
from headwater.views.model import VersionInfo, ViewInfo


@dataclass(frozen=True)
class Build:
    """Which build a query fills, and why."""

    number: int
    fingerprint: str  # as the store is to have it
    reason: Literal[
        "first",
        "same",
        "new version",
        "replay",
        "checkpoint lost",
        "store lost",
        "shared query changed",
        "deletes may have gone by",
    ]


def choose_build(view: str, version: int, fingerprint: str, known: ViewInfo | None) -> Build:
    """Goes on with the newest build when it was made by the same definition, else begins the next one.

    >>> choose_build("words", 1, '{"version": 1}', None)
    Build(number=1, fingerprint='{"version": 1}', reason='first')
    """
    if known is None or not known.versions:
        return Build(1, fingerprint, "first")
    newest = known.versions[-1]
    kind, declared = kind_of(newest.fingerprint), kind_of(fingerprint)
    owner, application = application_of(newest.fingerprint), application_of(fingerprint)
    if owner is not None and application is not None and owner != application:
        raise ViewChanged(
            "run",
            f"the {declared} {view}",
            f"the view store has a {kind} of that name, of the application {owner}",
            "Give it another name with name=..., or another view store; a renamed application needs a new one.",
        )
    if kind != declared:
        raise ViewChanged(
            "run",
            f"the {declared} {view}",
            f"the view store has a {kind} of that name already",
            "Give it another name with name=..., or another view store.",
        )
    built = version_of(newest.fingerprint)
    if version > built:
        return Build(newest.version + 1, fingerprint, "new version")
    if version < built:
        raise ViewChanged(
            "run",
            f"the view {view}",
            f"version {version} is declared, and version {built} was built already",
            f"Declare it with version={built + 1} to build it anew.",
        )
    if not same_definition(newest.fingerprint, fingerprint):
        raise ViewChanged(
            "run",
            f"the view {view}",
            f"its definition is not the one that version {version} was built with",
            f"Declare it with version={version + 1}: it is built beside the old one, then takes its place.",
        )
    kept = newest.fingerprint
    if owner is None and application is not None:  # of a store from before applications were noted
        kept = with_application(kept, application)
    return Build(newest.version, kept, "same")


def needs_rebuild(
    newest: VersionInfo, last_finished: int | None, last_planned: int | None
) -> Literal["checkpoint lost", "store lost"] | None:
    """Whether checkpoint and store are not of one history any more, so that going on would leave holes.

    A batch is planned in the checkpoint, then in the store, then finished in the checkpoint: the store is level
    with it or one batch ahead, and has no batch that was not planned. Spark does not sync its files: a power cut
    can take the newest, and it would then plan other batches under numbers that the store has had.
    """
    batch = newest.progress.batch
    finished, planned = (-1 if each is None else each for each in (last_finished, last_planned))
    if batch is None:
        return "store lost" if finished >= 0 else None
    if batch > planned or batch > finished + 1:
        return "checkpoint lost"
    return "store lost" if batch < finished else None

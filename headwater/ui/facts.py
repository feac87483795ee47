"""One look at everything, once a second for all open pages together, and at nothing while no page is open."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.connect.status import read_sink_statuses, read_statuses
from headwater.errors import HeadwaterError
from headwater.serve.serving import Serving
from headwater.serve.standing import INPUTS
from headwater.streams.engine.status import StatusFile
from headwater.ui import texts
from headwater.ui.broker import BrokerFacts, BrokerWatch, ReaderFacts
from headwater.ui.histories import History, Rates
from headwater.ui.looking import Interest, Look
from headwater.ui.reading import Reads
from headwater.views.model import Progress, ViewInfo

EVERY = 1.0  # seconds
STALE_SECONDS = 15.0  # without a new status, an engine whose process lives is stuck

PHASES = ("read", "plan", "run", "commit", "other")
# Spark's names of what a batch does, by what they mean to somebody who looks for the slow part.
_PHASE_OF = {
    "latestOffset": "read",
    "getOffset": "read",
    "getBatch": "read",
    "queryPlanning": "plan",
    "addBatch": "run",  # computing and writing, which Spark does not tell apart
    "walCommit": "commit",
    "commitOffsets": "commit",
    "commitBatch": "commit",
}
OUTPUT_FIGURES = (
    "input",
    "processed",
    "lag",
    "gap",
    "batch",
    *PHASES,
    "state_rows",
    "state_bytes",
    "late",
    "dead",
)
TOTAL_FIGURES = ("input", "processed", "lag", "gap", "changes")


@dataclass(frozen=True)
class Locals:
    """What the application's processes have left in its data directory."""

    at: float = 0.0
    document: Mapping[str, Any] | None = None
    sources: tuple[Mapping[str, Any], ...] = ()
    sinks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything that is known of a running application at one moment."""

    application: str
    locals: Locals
    broker: BrokerFacts
    views: Mapping[str, ViewInfo]
    change_rates: Mapping[str, float]  # changes a second, of each view
    row_rates: Mapping[str, float]  # records a second that each output reads
    broker_error: Exception | None = None
    store_error: Exception | None = None
    at: float = field(default_factory=time.time)

    @property
    def engine(self) -> str:
        """ "running", "stuck", "stopped", "ended" (without having stopped) or "never"."""
        document = self.locals.document
        if document is None:
            return "never"
        if document["running"]:
            return "stuck" if self.at - float(document["at"]) > STALE_SECONDS else "running"
        return "stopped" if document.get("stopped") else "ended"

    @property
    def outputs(self) -> dict[str, dict[str, Any]]:
        """The status of each output, by name."""
        found = (self.locals.document or {}).get("outputs", [])
        return {output["name"]: output for output in found}

    def gap(self, output: Mapping[str, Any]) -> float | None:
        """How far a watermark is behind the clock, in seconds."""
        watermark = texts.moment(output.get("watermark"))
        return None if watermark is None else self.at - watermark

    def readers(self, topic: str) -> list[ReaderFacts]:
        """The outputs that read a topic."""
        found = []
        for name, output in self.outputs.items():
            covered = output.get("offsets", {}).get(topic)
            if covered:
                offsets = {int(number): int(offset) for number, offset in covered.items()}
                found.append(ReaderFacts(name, "query", offsets, output["state"]))
        return found

    def lag_of(self, output: Mapping[str, Any], topic: str) -> int | None:
        """The records of a topic that an output has yet to read, by what is known of both now."""
        known = self.broker.topics.get(topic)
        covered = output.get("offsets", {}).get(topic)
        if known is None or covered is None:
            return None
        offsets = {int(number): int(offset) for number, offset in covered.items()}
        return ReaderFacts("", "query", offsets).lag(known)

    def batches_behind(self, reader: str, source: str) -> int | None:
        """The batches of a view that a view over it has yet to take in; None when that is not known."""
        standing = {name: _progress(self.views.get(name)) for name in (reader, source)}
        if (taken := standing[reader]) is None or (made := standing[source]) is None:
            return None
        version, batch = taken.offsets.get(INPUTS, {}).get(source, (None, None))
        if version != made.version or batch is None or made.batch is None:
            return None
        return max(0, made.batch - int(batch))


def _progress(info: ViewInfo | None) -> Progress | None:
    """Of the version that serves."""
    versions = info.versions if info is not None else ()
    return next((each.progress for each in versions if info and each.version == info.serving), None)


class Gatherer:
    """Gathers while somebody asks."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.interest = Interest()
        self.broker = BrokerWatch(serving.connection)
        self.reads = Reads(serving.store)
        self.histories: dict[str, History] = {}
        self.totals = History(TOTAL_FIGURES)
        self._status = StatusFile(serving.settings.data, serving.app.name)
        self._rates = Rates()
        self._row_rates: dict[str, float] = {}
        self._change_rates: dict[str, float] = {}
        self._broker = Look("the broker", self.interest, EVERY, self.broker.look, BrokerFacts())
        none: dict[str, ViewInfo] = {}
        self._views = Look("the views", self.interest, EVERY, self._look_at_views, none)
        self._locals = Look("the status", self.interest, EVERY, self._look_here, Locals())

    def facts(self) -> Facts:
        """What was seen last. Asking keeps it going."""
        self.interest.show()
        return Facts(
            application=self.serving.app.name,
            locals=self._locals.value,
            broker=self._broker.value,
            views=self._views.value,
            change_rates=self._change_rates,
            row_rates=self._row_rates,
            broker_error=self._broker.error,
            store_error=self._views.error,
        )

    def fresh(self, seconds: float = 2.5) -> Facts:
        """As `facts`, after waiting so long at most for a first look. For a thread, not for the event loop."""
        self.interest.show()
        end = time.monotonic() + seconds
        looks = (self._broker, self._views, self._locals)
        while time.monotonic() < end and any(time.monotonic() - look.at > 5 * EVERY for look in looks):
            time.sleep(0.02)
        return self.facts()

    def history(self, output: str) -> History:
        """The figures of an output, as OUTPUT_FIGURES names them."""
        return self.histories.setdefault(output, History(OUTPUT_FIGURES))

    def stop(self) -> None:
        self.interest.stop()

    # -- looks ---------------------------------------------------------------------------------------

    def _look_at_views(self) -> dict[str, ViewInfo]:
        now, found = time.time(), {info.name: info for info in self.serving.store.views()}
        self._change_rates = {
            name: self._rates.take(f"changes {name}", now, info.last_change) or 0.0
            for name, info in found.items()
        }
        return found

    def _look_here(self) -> Locals:
        data, now = self.serving.settings.data, time.time()
        found = Locals(now, self._status.read(), tuple(read_statuses(data)), tuple(read_sink_statuses(data)))
        self._row_rates = {
            output["name"]: rate
            for output in (found.document or {}).get("outputs", [])
            if (rate := self._rates.take(f"rows {output['name']}", now, output["rows_in"])) is not None
        }
        facts = Facts(
            application=self.serving.app.name,
            locals=found,
            broker=self._broker.value,
            views=self._views.value,
            change_rates=self._change_rates,
            row_rates=self._row_rates,
            at=now,
        )
        for name, output in facts.outputs.items():
            self.history(name).add(now, output_figures(facts, output))
        self.totals.add(now, total_figures(facts))
        return found


def output_figures(facts: Facts, output: Mapping[str, Any]) -> list[float | None]:
    """A sample of what OUTPUT_FIGURES names."""
    is_live = facts.engine == "running"
    rates = _rates(facts, output["offsets"])
    lags = [facts.lag_of(output, topic) for topic in output["offsets"]]
    parts = phases(output["phases"])
    return [
        sum(rates) if rates else None,
        facts.row_rates.get(output["name"]) if is_live else None,
        sum(lag or 0 for lag in lags) if lags and None not in lags else output["lag"],
        facts.gap(output),
        output["batch_ms"] if is_live else None,
        *(parts[phase] if is_live and parts else None for phase in PHASES),
        output["state_rows"],
        output["state_bytes"],
        output["late"],
        output["dead"],
    ]


def total_figures(facts: Facts) -> list[float | None]:
    """A sample of what TOTAL_FIGURES names."""
    rates = _rates(facts, {topic for output in facts.outputs.values() for topic in output["offsets"]})
    lags = [output["lag"] for output in facts.outputs.values() if output["lag"] is not None]
    gaps = [gap for output in facts.outputs.values() if (gap := facts.gap(output)) is not None]
    return [
        sum(rates) if rates else None,
        sum(facts.row_rates.values()) if facts.engine == "running" and facts.row_rates else None,
        sum(lags) if lags else None,
        max(gaps, default=None),
        sum(facts.change_rates.values()),
    ]


def _rates(facts: Facts, topics: Iterable[str]) -> list[float]:
    found = (facts.broker.topics[topic].rate for topic in topics if topic in facts.broker.topics)
    return [rate for rate in found if rate is not None]


def phases(spark: Mapping[str, int]) -> dict[str, int]:
    """Where the milliseconds of a batch went.

    >>> phases({"latestOffset": 5, "addBatch": 80, "walCommit": 10, "triggerExecution": 100})
    {'read': 5, 'plan': 0, 'run': 80, 'commit': 10, 'other': 5}
    """
    if not spark:
        return {}
    found = dict.fromkeys(PHASES, 0)
    for name, milliseconds in spark.items():
        if name in _PHASE_OF:
            found[_PHASE_OF[name]] += int(milliseconds)
    found["other"] = max(0, int(spark.get("triggerExecution", 0)) - sum(found.values()))
    return found


def in_words(error: Exception) -> tuple[str, str]:
    """The cause and the next step of an error.

    >>> in_words(ValueError("no such file"))
    ('ValueError: no such file', 'See the log of the server.')
    """
    if isinstance(error, HeadwaterError):
        return error.cause, error.next_step
    return f"{type(error).__name__}: {error}", "See the log of the server."

"""The graph of an application with its figures: what each box and line says at a moment. Pure."""

from collections.abc import Mapping
from typing import Any

from headwater.streams.app import App
from headwater.streams.declarations import Node, Stream, Table, Topic, View
from headwater.streams.drawing import detail
from headwater.ui import texts
from headwater.ui.diagram import HEIGHT, WIDTH, Diagram, Line, draw
from headwater.ui.facts import Facts
from headwater.ui.problems import split_error

BEHIND = 10_000  # records of lag from which a line is shown as behind
NOTE, NAME = 30, 23  # characters that fit into a box


class Picture:
    """The drawing of an application, made once, and what it shows."""

    def __init__(self, app: App, base: str) -> None:
        self._app, self._base = app, base
        self._graph = app.graph()
        self.diagram: Diagram = draw(self._graph)

    def frame(self) -> dict[str, Any]:
        """What does not change."""
        return {
            "width": self.diagram.width,
            "height": self.diagram.height,
            "boxWidth": WIDTH,
            "boxHeight": HEIGHT,
        }

    def boxes(self, facts: Facts) -> list[dict[str, Any]]:
        """Each box with its state and a line of figures."""
        shown = []
        for box in self.diagram.boxes:
            node = self._graph.nodes.get(box.id)
            if node is not None:
                note, tone, dot, title, path = self._node(facts, node)
            else:
                note, tone, dot, title, path = self._connector(facts, box.name, box.kind)
            shown.append(
                {
                    "id": box.id,
                    "name": texts.shortened(box.name, NAME),
                    "kind": box.kind,
                    "x": round(box.x),
                    "y": round(box.y),
                    "note": texts.shortened(note, NOTE),
                    "tone": tone,
                    "dot": dot,
                    "title": title,
                    "href": f"{self._base}/{path}",
                }
            )
        return shown

    def lines(self, facts: Facts) -> list[dict[str, Any]]:
        """Each line with rate, lag and watermark."""
        return [self._line(facts, line) for line in self.diagram.lines]

    # -- boxes ---------------------------------------------------------------------------------------

    def _node(self, facts: Facts, node: Node) -> tuple[str, str, str, str, str]:
        output = facts.outputs.get(node.name)
        title = f"{node.kind} {node.name}: {detail(node)}"
        if isinstance(node, Stream):
            topic = facts.broker.topics.get(node.topic)
            note = (
                f"{texts.rate(topic.rate)} · {texts.counted(topic.records, 'record')}"
                if topic is not None
                else "no topic yet"
            )
            return note, "plain", "", title, f"topics/{node.topic}"
        path = f"queries/{node.name}"
        if output is None:
            return detail(node), "plain", "", title, path
        if output["error"]:
            cause = split_error(output["error"])[0]
            return cause, "bad", "bad", f"{title}\n{cause}", path
        dot = "ok" if output["state"] == "running" and facts.engine == "running" else "warn"
        return self._figures(facts, node, output), "plain", dot, title, path

    def _figures(self, facts: Facts, node: Node, output: Mapping[str, Any]) -> str:
        if isinstance(node, View | Table):
            info = facts.views.get(node.name)
            if info is None:
                return str(output["state"])
            serving = next((each for each in info.versions if each.version == info.serving), None)
            if serving is None or len(info.versions) > 1:
                return f"building version {info.versions[-1].version}"
            changes = facts.change_rates.get(node.name, 0.0)
            return f"{texts.counted(serving.progress.rows, 'row')} · {texts.rate(changes)} changes"
        if isinstance(node, Topic):
            topic = facts.broker.topics.get(node.topic)
            if topic is not None:
                return f"{texts.rate(topic.rate)} · {texts.counted(topic.records, 'record')}"
        return f"{texts.counted(output['rows_out'], 'row')} written"

    def _connector(self, facts: Facts, name: str, kind: str) -> tuple[str, str, str, str, str]:
        documents = facts.locals.sources if kind == "source" else facts.locals.sinks
        declared = (self._graph.sources if kind == "source" else self._graph.sinks)[name]
        title = f"{kind} {name}: {declared.describe()}"
        document = next((each for each in documents if each["name"] == name), None)
        if document is None:
            return "has not run yet", "warn", "warn", title, "connect"
        if document["state"] == "failed":
            return split_error(document["error"])[0], "bad", "bad", f"{title}\n{document['error']}", "connect"
        if not document["running"] or document["error"]:
            return document["error"] or "not running", "warn", "warn", title, "connect"
        records = document.get("records") or document.get("counts", {}).get("records", 0)
        return (
            f"{texts.rate(document['rate'])} · {texts.counted(records, 'record')}",
            "plain",
            "ok",
            title,
            "connect",
        )

    # -- lines ---------------------------------------------------------------------------------------

    def _line(self, facts: Facts, line: Line) -> dict[str, Any]:
        target = self._graph.nodes.get(line.target)
        if line.source.startswith("source ") and target is not None:
            rate, lag, behind = self._from_source(facts, line.source.removeprefix("source "))
            watermark, path, tone = None, "connect", "plain"
        elif target is None:
            rate, lag, behind = self._to_sink(facts, line.target.removeprefix("sink "))
            watermark, path, tone = None, "connect", "plain"
        else:
            rate, lag, behind = self._to_output(facts, self._graph.nodes[line.source], line.target)
            output = facts.outputs.get(line.target, {})
            watermark = facts.gap(output) if output else None
            path, tone = f"queries/{line.target}", "bad" if output.get("error") else "plain"
        if tone == "plain" and behind:
            tone = "warn"
        said = [texts.rate(rate)] if rate is not None else []
        more = ([f"lag {lag}"] if lag else []) + (
            [f"wm {_behind(watermark)}"] if watermark is not None else []
        )
        said += [" · ".join(more)] if more else []
        title = f"{line.source} → {line.target}\n" + (
            f"watermark {texts.span(watermark)} behind the clock" if watermark is not None else ""
        )
        return {
            "id": f"{line.source} > {line.target}",
            "path": line.path,
            "x": round(line.label[0]),
            "y": round(line.label[1]),
            "texts": said,
            "tone": tone,
            "moves": bool(rate) and facts.engine == "running",
            "title": title.strip(),
            "href": f"{self._base}/{path}",
        }

    def _to_output(self, facts: Facts, source: Node, reader: str) -> tuple[float | None, str, bool]:
        output = facts.outputs.get(reader)
        if output is None:
            return None, "", False
        topic = (
            source.topic if isinstance(source, Stream | Table | Topic) else f"{self._app.name}.{source.name}"
        )
        lag = facts.lag_of(output, topic)
        if lag is not None:
            read = [each for each in output["offsets"] if each in facts.broker.topics]
            whole = facts.row_rates.get(reader, 0.0)
            # Of several topics that one output reads, only the sum is counted: each has the share that it grows by.
            grown = {each: facts.broker.topics[each].rate or 0.0 for each in read}
            total = sum(grown.values())
            rate = whole if len(read) < 2 else whole * grown[topic] / total if total else 0.0
            return rate, texts.count(lag), lag > BEHIND
        behind = facts.batches_behind(reader, source.name)
        lag_text = "" if behind is None else texts.counted(behind, "batch", "batches")
        return facts.change_rates.get(source.name), lag_text, False

    def _from_source(self, facts: Facts, name: str) -> tuple[float | None, str, bool]:
        document = next((each for each in facts.locals.sources if each["name"] == name), None)
        if document is None:
            return None, "", False
        inner = document.get("source", {})
        seconds, size = inner.get("lag_seconds"), inner.get("lag_bytes")
        lag = texts.span(seconds) if seconds is not None else texts.size(size) if size is not None else ""
        return document["rate"], lag, bool(seconds and seconds > 60)

    def _to_sink(self, facts: Facts, name: str) -> tuple[float | None, str, bool]:
        document = next((each for each in facts.locals.sinks if each["name"] == name), None)
        if document is None:
            return None, "", False
        lag = document.get("lag_records")
        return document["rate"], "" if lag is None else texts.count(lag), bool(lag and lag > BEHIND)


def _behind(seconds: float) -> str:
    """As narrow as it can be read.

    >>> _behind(75.2)
    '-1m15s'
    """
    text = texts.span(round(max(0.0, seconds)))
    return "-" + text.replace("min", "m").replace(" ", "")

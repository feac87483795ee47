"""The message browser of a topic: pages by offset and by time, a filter, a live tail, and one message in full."""

from collections.abc import Callable
from typing import Any

from nicegui import ui
from nicegui.run import io_bound

from headwater.cli.moments import iso, parse_moment
from headwater.errors import BadInput, HeadwaterError
from headwater.ui import texts
from headwater.ui.facts import Gatherer
from headwater.ui.messages import Browser, MessagePage, Shown, Tail, message_filter
from headwater.ui.parts.elements import Detail, Sheet, box, button, said

LIMIT = 50
TAIL_SECONDS = 0.5
ALL = "All partitions"

STARTS = {"newest": "Newest", "oldest": "Oldest", "offset": "From offset", "time": "From time"}
COLUMNS = (
    {"name": "time", "label": "Time (UTC)", "mono": True},
    {"name": "partition", "label": "Part.", "align": "right", "title": "Partition"},
    {"name": "offset", "label": "Offset", "align": "right"},
    {"name": "key", "label": "Key", "mono": True},
    {"name": "value", "label": "Value", "mono": True, "wide": True},
    {"name": "headers", "label": "Headers", "align": "right"},
    {"name": "size", "label": "Size", "align": "right"},
)


class MessagePanel:
    """What somebody looks at and looks for in a topic."""

    def __init__(self, gatherer: Gatherer, topic: str) -> None:
        self._gatherer, self._topic = gatherer, topic
        self._count = 0
        self._page = MessagePage()
        self._shown: dict[str, Shown] = {}
        self._tail: Tail | None = None
        self._busy = False
        self._next: Callable[[Browser], MessagePage] | None = None  # asked for while another was read
        with box("hw-tools"):
            self._partition = self._select({ALL: ALL}, ALL, "data-partition", "Partition")
            self._start = self._select(STARTS, "newest", "data-start", "Where to begin")
            self._at = self._input("Offset", "data-at").classes("hw-at")
            self._at.set_visibility(False)
            self._filter = self._input("Filter: any text, or key=…", "data-filter").classes("hw-filter")
            button("Show", self.load, "data-show")
            box("hw-grow")
            self._older, _ = button("← Older", self._load_older, "data-older")
            self._newer, _ = button("Newer →", self._load_newer, "data-newer")
            self._live, _ = button("Live", self._toggle_live, "data-live")
            self._pause, self._pause_text = button("Pause", self._toggle_pause, "data-pause")
            self._pause.set_visibility(False)
        self._said = said("", "hw-said").props('data-said=""')
        with box("hw-split") as self._split:
            self._sheet = Sheet(
                COLUMNS,
                empty="No messages here.",
                hint=f"headwater produce {topic}",
                height="640px",
                dense=True,
                on_pick=self._pick,
            )
            self._detail = _MessageDetail(self._close)
        self._start.on_value_change(self._start_changed)
        self._at.on("keydown.enter", self.load)
        self._filter.on("keydown.enter", self._filter_entered)

    def start(self) -> None:
        """Shows the newest messages, and follows the tail when asked to, until the page is left."""
        ui.timer(0.05, self.load, once=True)
        ui.timer(TAIL_SECONDS, self._follow)

    def partitions(self, count: int) -> None:
        """How many partitions there are to choose from."""
        if count != self._count:
            self._count = count
            self._partition.set_options(
                {ALL: ALL} | {str(number): f"Partition {number}" for number in range(count)}
            )

    # -- pages ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """The page that the controls say."""
        self._end_tail()
        chosen, kind, at = self._chosen(), str(self._start.value), (self._at.value or "").strip()
        test = message_filter(self._filter.value or "")

        def read(browser: Browser) -> MessagePage:
            if kind == "oldest":
                return browser.after({}, chosen, LIMIT, test)
            if kind == "offset":
                return browser.after(dict.fromkeys(chosen, _offset(at)), chosen, LIMIT, test)
            if kind == "time":
                milliseconds = parse_moment(at or "10 minutes ago", "the time")
                return browser.after(browser.at_time(milliseconds, chosen), chosen, LIMIT, test)
            return browser.before(None, chosen, LIMIT, test)

        await self._load(read)

    async def _load_older(self) -> None:
        test = message_filter(self._filter.value or "")
        await self._load(lambda browser: browser.before(self._page.older, self._chosen(), LIMIT, test))

    async def _load_newer(self) -> None:
        test = message_filter(self._filter.value or "")
        await self._load(lambda browser: browser.after(self._page.newer, self._chosen(), LIMIT, test))

    async def _load(self, read: Callable[[Browser], MessagePage]) -> None:
        """Shows what is asked for last: what is asked for while another page is read is read after it."""
        self._next = read
        if self._busy:
            return
        self._busy = True
        try:
            while (newest := self._next) is not None:
                self._next = None
                await self._load_one(newest)
        finally:
            self._busy = False

    async def _load_one(self, read: Callable[[Browser], MessagePage]) -> None:
        try:
            page = await io_bound(self._read, read)
        except HeadwaterError as error:
            self._say(f"{error.cause[0].upper()}{error.cause[1:]}. {error.next_step}", bad=True)
            return
        if page is None or self._next is not None or self._tail is not None:
            return
        self._page = page
        self._show(page.messages)
        self._older.props(remove="disabled") if page.has_older else self._older.props("disabled")
        self._newer.props(remove="disabled") if page.has_newer else self._newer.props("disabled")
        self._say(_summary(page, bool((self._filter.value or "").strip())))

    def _read(self, read: Callable[[Browser], MessagePage]) -> MessagePage:
        serving = self._gatherer.serving
        return read(Browser(serving.connection, self._gatherer.broker.admin(), self._topic))

    def _chosen(self) -> list[int]:
        chosen = self._partition.value
        return list(range(max(1, self._count))) if chosen == ALL else [int(str(chosen))]

    def _start_changed(self) -> None:
        kind = self._start.value
        self._at.set_visibility(kind in ("offset", "time"))
        if kind == "offset":
            self._at.props('placeholder="Offset"')
        elif kind == "time":
            self._at.props('placeholder="2026-01-02 12:00Z, or 10 minutes ago"')

    async def _filter_entered(self) -> None:
        if self._tail is None:
            await self.load()
        else:
            self._begin_tail()

    # -- the tail ------------------------------------------------------------------------------------

    async def _toggle_live(self) -> None:
        if self._tail is None:
            self._begin_tail()
        else:
            await self.load()

    def _begin_tail(self) -> None:
        self._end_tail()
        chosen = None if self._partition.value == ALL else self._chosen()
        test = message_filter(self._filter.value or "")
        self._tail = Tail(self._gatherer.serving.connection, self._topic, chosen, test)
        self._live.classes(add="is-on")
        self._pause.set_visibility(True)
        self._set_pause(False)
        self._show(())
        self._say("Waiting for new messages …")

    def _end_tail(self) -> None:
        if self._tail is not None:
            self._tail.stop()
            self._tail = None
            self._live.classes(remove="is-on")
            self._pause.set_visibility(False)

    def _toggle_pause(self) -> None:
        if self._tail is not None:
            self._set_pause(not self._tail.paused)

    def _set_pause(self, paused: bool) -> None:
        assert self._tail is not None
        self._tail.paused = paused
        self._pause_text.set_text("Go on" if paused else "Pause")
        self._pause.classes(add="is-on" if paused else "", remove="" if paused else "is-on")

    def _follow(self) -> None:
        tail = self._tail
        if tail is None:
            return
        if tail.error is not None:
            self._say(f"{tail.error.cause}. {tail.error.next_step}", bad=True)
            return
        messages = tail.messages()
        if not tail.seen:
            return
        if not tail.paused:
            self._show(messages)
        words = (
            f"{tail.passed:,} new" if tail.passed == tail.seen else f"{tail.passed:,} of {tail.seen:,} new"
        )
        self._say(f"{words} messages" + (", paused" if tail.paused else ""))

    # -- what is shown -------------------------------------------------------------------------------

    def _show(self, messages: tuple[Shown, ...]) -> None:
        self._shown = {message.id: message for message in messages}
        self._sheet.rows([_row(message) for message in messages])

    def _pick(self, row: str) -> None:
        message = self._shown.get(row)
        if message is not None:
            self._detail.show(message)
            self._split.classes(add="is-open")
            self._sheet.show(chosen=row)

    def _close(self) -> None:
        self._detail.hide()
        self._split.classes(remove="is-open")
        self._sheet.show(chosen="")

    def _say(self, text: str, bad: bool = False) -> None:
        self._said.set_text(text)
        self._said.classes(add="is-bad" if bad else "", remove="" if bad else "is-bad")

    # -- controls ------------------------------------------------------------------------------------

    def _select(self, options: dict[str, str], value: str, mark: str, label: str) -> ui.select:
        select = ui.select(options, value=value).props(f'dense outlined options-dense {mark}=""')
        select.props["aria-label"] = label
        return select

    def _input(self, placeholder: str, mark: str) -> ui.input:
        control = ui.input(placeholder=placeholder).props(f'dense outlined {mark}=""')
        control.props["aria-label"] = placeholder
        return control


class _MessageDetail:
    """One message in full."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._outer = box("hw-detail", "aside").props('data-detail=""')
        self._outer.set_visibility(False)
        with self._outer:
            with box("hw-head"):
                self._title = said("", "", "b")
                box("hw-grow")
                with box("hw-icon", "button").props('type="button" aria-label="Close"').on("click", close):
                    ui.icon("close", size="16px")
            self._note = said("")
            said("Key", "", "h3")
            self._key = Detail()
            self._value_title = said("Value", "", "h3")
            self._value = Detail()
            self._headers_title = said("Headers", "", "h3")
            self._headers = Detail()

    def show(self, message: Shown) -> None:
        """Shows it."""
        self._title.set_text(f"Partition {message.partition}, offset {message.offset:,}")
        self._note.set_text(f"{_time(message)} UTC · {texts.size(message.size)}")
        self._key.show(text="(none)" if message.key is None else message.key)
        if message.value is None:
            self._value_title.set_text("Value")
            self._value.show(text="(none: a tombstone, which deletes the key)", coloured=False)
        else:
            self._value_title.set_text("Value" + (", its beginning" if message.is_cut else ""))
            self._value.show(text=message.pretty(), coloured=message.is_json)
        names = "\n".join(
            f"{name}: {'(null)' if value is None else value}" for name, value in message.headers
        )
        self._headers.show(text=names or "(none)")
        self._outer.set_visibility(True)

    def hide(self) -> None:
        """Hides it."""
        self._outer.set_visibility(False)


def _row(message: Shown) -> dict[str, Any]:
    tombstone = message.value is None
    return {
        "id": message.id,
        "cells": {
            "time": _time(message),
            "partition": message.partition,
            "offset": message.offset,
            "key": {"text": "null", "tone": "muted"}
            if message.key is None
            else texts.shortened(message.key, 40),
            "value": {"text": "tombstone", "badge": True, "tone": "warn"} if tombstone else message.preview,
            "headers": len(message.headers) or "",
            "size": texts.size(message.size),
        },
    }


def _time(message: Shown) -> str:
    return texts.NONE if message.timestamp is None else iso(message.timestamp).replace("T", " ").rstrip("Z")


def _offset(text: str) -> int:
    try:
        return max(0, int(text.replace(",", "").replace("_", "") or 0))
    except ValueError:
        raise BadInput("read", f"the offset {text!r}", "it is not a whole number", "Give one.") from None


def _summary(page: MessagePage, filtered: bool) -> str:
    count = len(page.messages)
    words = texts.counted(count, "message")
    if not filtered:
        return words
    more = page.has_older or page.has_newer
    return f"{words} found in {page.looked_at:,} offsets" + (
        "; there is more to look through." if count < LIMIT and more else "."
    )

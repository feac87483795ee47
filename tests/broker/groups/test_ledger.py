"""Writes take effect when the journal has them, in its order, and whatever becomes of who asked for them."""

import asyncio

import pytest

from headwater.broker.groups.ledger import Ledger, Plan
from headwater.broker.groups.records import GroupKey, Record
from headwater.errors import DiskFull
from tests.broker.groups.calling import MemoryJournal
from tests.broker.groups.virtual_time import run

RECORDS: list[Record] = [(GroupKey("g"), None)]
FULL = DiskFull("append to", "the journal", "no space left on device")


def test_effects_keep_the_order_of_the_journal_though_answers_do_not() -> None:
    async def program() -> None:
        journal = MemoryJournal()
        ledger, effects = Ledger(journal), []
        journal.delay = 5
        slow = ledger.submit("g", RECORDS, lambda: effects.append("slow"))
        await asyncio.sleep(0.1)
        journal.delay = 1
        fast = ledger.submit("g", RECORDS, lambda: effects.append("fast"))
        other = ledger.submit("other", RECORDS, lambda: effects.append("other"))
        ledger.after("g", lambda: effects.append("after"))
        await other
        assert effects == ["other"]
        await fast
        assert slow.done()
        await asyncio.sleep(0)
        assert effects == ["other", "slow", "fast", "after"]
        ledger.after("g", lambda: effects.append("now"))
        assert effects[-1] == "now"

    run(program())


def test_a_failed_write_has_no_effect_and_holds_up_no_other() -> None:
    async def program() -> None:
        journal = MemoryJournal()
        ledger, effects = Ledger(journal), []
        journal.failure, journal.delay = FULL, 1
        failing = ledger.submit("g", RECORDS, lambda: effects.append("failed"))
        await asyncio.sleep(0.1)
        journal.failure = None
        await ledger.write("g", RECORDS, lambda: effects.append("written"))
        assert effects == ["written"]
        with pytest.raises(DiskFull):
            await failing

    run(program())


def test_a_write_goes_on_when_its_request_is_cancelled() -> None:
    async def program() -> None:
        journal = MemoryJournal()
        ledger, effects = Ledger(journal), []
        journal.delay = 1
        request = asyncio.create_task(ledger.write("g", RECORDS, lambda: effects.append("written")))
        await asyncio.sleep(0.1)
        request.cancel()
        await asyncio.sleep(2)
        assert request.cancelled() and effects == ["written"]

    run(program())


def test_a_change_keeps_others_out_until_it_took_effect_even_when_cancelled() -> None:
    async def program() -> None:
        journal = MemoryJournal()
        ledger, seen = Ledger(journal), []
        state = {"value": 0}
        journal.delay = 1

        def plan() -> Plan[int]:
            seen.append(state["value"])
            new = state["value"] + 1
            return Plan(new, RECORDS, lambda: state.update(value=new))

        first, second, third = (asyncio.create_task(ledger.change("g", plan)) for _ in range(3))
        await asyncio.sleep(0.1)
        first.cancel()
        second.cancel()
        assert await third == 2, "the cancelled second one had not begun"
        assert seen == [0, 1] and state["value"] == 2

    run(program())


def test_a_plan_that_refuses_lets_the_next_one_in() -> None:
    async def program() -> None:
        ledger = Ledger(MemoryJournal())

        def refuse() -> Plan[None]:
            raise ValueError("no")

        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await asyncio.wait_for(ledger.change("g", refuse), 1)
        assert not ledger.lock("g").locked()

    run(program())


def test_a_change_that_was_not_written_is_undone_before_the_next_one() -> None:
    async def program() -> None:
        journal = MemoryJournal()
        ledger, events = Ledger(journal), []
        journal.failure, journal.delay = FULL, 1

        def plan() -> Plan[None]:
            events.append("planned")
            return Plan(None, RECORDS, lambda: events.append("done"), lambda: events.append("undone"))

        first = asyncio.create_task(ledger.change("g", plan))
        await asyncio.sleep(0.1)
        journal.failure = None
        await ledger.change("g", plan)
        assert events == ["planned", "undone", "planned", "done"]
        with pytest.raises(DiskFull):
            await first

    run(program())


def test_locks_of_groups_that_nobody_uses_are_forgotten() -> None:
    async def program() -> None:
        ledger = Ledger(MemoryJournal())
        for number in range(1000):
            await ledger.change(f"g{number}", lambda: Plan(None, RECORDS))
        await ledger.settled()
        await asyncio.sleep(0)
        assert len(ledger._locks) <= 1 and not ledger._last

    run(program())

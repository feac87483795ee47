"""Timers: each fires once, at its last deadline, however often it was moved."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.timers import Timers
from tests.broker.groups.virtual_time import run

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), NAMES, st.integers(0, 20)),
        st.tuples(st.just("cancel"), NAMES, st.just(0)),
        st.tuples(st.just("sleep"), NAMES, st.integers(1, 15)),
    ),
    max_size=40,
)


@given(STEPS)
def test_they_fire_when_a_simple_model_says(steps: list[tuple[str, str, int]]) -> None:
    async def program() -> None:
        timers, fired, expected = Timers(), [], []
        model: dict[str, tuple[int, int]] = {}  # name -> deadline and number
        now = 0

        def elapse(until: int) -> None:
            due = sorted((at, name, number) for name, (at, number) in model.items() if at <= until)
            for at, name, number in due:
                expected.append((at, name, number))
                del model[name]

        for number, (step, name, amount) in enumerate(steps):
            if step == "schedule":
                timers.schedule(
                    name, amount, lambda n=name, i=number: fired.append((round(loop.time()), n, i))
                )
                model[name] = (now + amount, number)
            elif step == "cancel":
                timers.cancel(name)
                model.pop(name, None)
            else:
                await asyncio.sleep(amount + 0.001)
                now += amount
                elapse(now)
        await asyncio.sleep(30)
        elapse(now + 30)
        assert sorted(fired) == sorted(expected)
        assert len(timers) == 0

    loop: asyncio.AbstractEventLoop

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        await program()

    run(main())


def test_moving_a_deadline_costs_no_heap() -> None:
    async def program() -> None:
        timers = Timers()
        for _ in range(1000):
            for name in range(10):
                timers.schedule(name, 45, lambda: None)
        assert len(timers._heap) == 10

    run(program())


def test_cancelled_timers_do_not_pile_up() -> None:
    async def program() -> None:
        timers = Timers()
        timers.schedule("lasting", 1000, lambda: None)
        for number in range(10_000):
            timers.schedule(number, 1800, lambda: None)
            timers.cancel(number)
        assert len(timers._heap) < 200

    run(program())


def test_a_callback_that_fails_holds_up_no_other() -> None:
    async def program() -> None:
        timers, fired = Timers(), []
        timers.schedule("bad", 1, lambda: 1 / 0)
        timers.schedule("good", 1, lambda: fired.append("good"))
        await asyncio.sleep(2)
        assert fired == ["good"]

    run(program())

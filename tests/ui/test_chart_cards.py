"""The cards of charts, drawn one after the other."""

import asyncio
from typing import cast

from headwater.ui.parts.charts import ChartCard, draw


class Card:
    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.done = error, list[object]()

    async def refresh(self) -> None:
        if self.error is not None:
            raise self.error
        self.done.append("drawn")

    def fail(self, error: Exception) -> None:
        self.done.append(error)


def test_a_chart_that_cannot_be_drawn_holds_up_no_other() -> None:
    error = TypeError("no such thing")
    cards = [Card(), Card(error), Card()]
    asyncio.run(draw(cast(list[ChartCard], cards)))
    assert [card.done for card in cards] == [["drawn"], [error], ["drawn"]]

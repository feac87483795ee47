"""What a change does not carry: values stored apart, generated columns, the events of the outbox."""

from collections.abc import Sequence
from typing import Any

from headwater.connect.cdc.outbox import event
from headwater.connect.cdc.postgres.pgoutput import UNCHANGED, Values
from headwater.connect.cdc.postgres.plan import Plan
from headwater.connect.cdc.postgres.questions import Generator, values_now
from headwater.connect.cdc.postgres.session import Session
from headwater.connect.source import Record


class Filler:
    """Fills in the rows of the stream; the better half of changes.Helper."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generator = Generator(session.database)

    def generate(self, plan: Plan, values: Values) -> Sequence[bytes | None]:
        return self._generator.compute(plan, values)

    def fill(
        self, plan: Plan, key: bytes | None, values: Values, old: Values | None, at: int, number: int
    ) -> None:
        missing = [place for place, value in enumerate(values) if value is UNCHANGED]
        if old is not None:
            for place in missing:
                values[place] = old[place]
            return
        cached = (
            self._session.cache.get(plan.full_name.encode(), key, at, number) if key is not None else None
        )
        if cached is not None:
            for place in missing:
                values[place] = cached.get(plan.streamed[place].name, UNCHANGED)
            missing = [place for place in missing if values[place] is UNCHANGED]
        if missing:
            found = values_now(self._session.database, plan, values, missing)
            for number_of, place in enumerate(missing):
                values[place] = None if found is None else found[number_of]

    def keep(self, plan: Plan, key: bytes | None, values: Values, at: int, number: int) -> None:
        if key is None or not plan.apart:
            return
        large = {plan.streamed[place].name: values[place] for place in plan.apart}
        kept = {name: value for name, value in large.items() if isinstance(value, bytes)}
        self._session.cache.put(plan.full_name.encode(), key, at, number, kept)

    def gone(self, plan: Plan, key: bytes | None, at: int, number: int) -> None:
        if key is not None and plan.apart:
            self._session.cache.gone(plan.full_name.encode(), key, at, number)

    def outbox(self, plan: Plan, values: Values, out: list[Record]) -> None:
        out.append(self.outbox_event(plan, values))

    def outbox_event(self, plan: Plan, values: Sequence[Any]) -> Record:
        fields = plan.streamed if len(values) == len(plan.streamed) else plan.fields
        row = {field.name: value for field, value in zip(fields, values, strict=True)}
        payload = next(field for field in fields if field.name == "payload")
        if self._session.types.row(payload.type_oid).name == "bytea" and row["payload"] is not None:
            row["payload"] = bytes.fromhex(row["payload"][2:].decode())
        return event(row)

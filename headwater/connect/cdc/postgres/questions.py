"""What the stream does not carry and the database is asked for: generated columns, values stored apart, rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import pq

from headwater.connect.cdc.postgres.catalog import identifier, literal
from headwater.connect.cdc.postgres.pgoutput import Values
from headwater.connect.cdc.postgres.plan import Plan
from headwater.connect.cdc.postgres.replication import said
from headwater.errors import ConnectionLost


class Generator:
    """Generated columns: their expressions use nothing but the row, so the server computes them from its values."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection.pgconn
        self._prepared: dict[Plan, bytes] = {}

    def compute(self, plan: Plan, values: Values) -> list[bytes | None]:
        name = self._prepared.get(plan)
        if name is None:
            name = self._prepared[plan] = self._prepare(plan)
        given = [value if isinstance(value, bytes) else None for value in values]
        answer = self._connection.exec_prepared(name, given)  # type: ignore[arg-type]
        _check(answer, "compute generated columns of", plan.full_name)
        return [answer.get_value(0, column) for column in range(answer.nfields)]

    def _prepare(self, plan: Plan) -> bytes:
        name = b"generated_%d" % len(self._prepared)
        columns = ", ".join(f"${n} AS {identifier(field.name)}" for n, field in enumerate(plan.streamed, 1))
        wanted = ", ".join(str(plan.fields[place].expression) for place in plan.generated)
        query = f"SELECT {wanted} FROM (SELECT {columns}) AS row_of_the_stream"
        oids = [field.type_oid for field in plan.streamed]
        _check(self._connection.prepare(name, query.encode(), oids), "prepare for", plan.full_name)
        return name


def values_now(
    connection: psycopg.Connection[Any], plan: Plan, values: Values, places: Sequence[int]
) -> list[bytes | None] | None:
    """Some columns of a row as it is now, found by its key; None if it is gone, or the columns are."""
    columns = ", ".join(identifier(plan.streamed[place].name) for place in places)
    conditions = []
    for place in plan.key_places:
        value = values[place]
        if not isinstance(value, bytes):
            return None
        conditions.append(f"{identifier(plan.streamed[place].name)} = {literal(connection, value)}")
    table = f"{identifier(plan.schema)}.{identifier(plan.table)}"
    query = f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions)}"
    answer = connection.pgconn.exec_params(query.encode(), None)
    if answer.status == pq.ExecStatus.FATAL_ERROR and connection.pgconn.status == pq.ConnStatus.OK:
        return None  # a column or the table was dropped or renamed since
    _check(answer, "read", plan.full_name)
    return [answer.get_value(0, column) for column in range(len(places))] if answer.ntuples else None


def _check(answer: pq.abc.PGresult, operation: str, table: str) -> None:
    if answer.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise ConnectionLost(operation, table, said(answer.error_message))


def copy_lines(connection: psycopg.Connection[Any], query: str, table: str) -> Iterator[bytes]:
    """The lines of ``COPY (query) TO STDOUT``. Who stops in the middle has to call `stop_copy`."""
    answer = connection.pgconn.exec_(f"COPY ({query}) TO STDOUT".encode())
    if answer.status != pq.ExecStatus.COPY_OUT:
        raise psycopg.errors.lookup((answer.error_field(pq.DiagnosticField.SQLSTATE) or b"XX000").decode())(
            said(answer.error_message)
        )
    get = connection.pgconn.get_copy_data
    while True:
        size, data = get(0)
        if size > 0:
            yield bytes(data)
        elif size == -1:
            break
        else:
            raise ConnectionLost("read", table, said(connection.pgconn.error_message))
    while (result := connection.pgconn.get_result()) is not None:
        _check(result, "read", table)


def stop_copy(connection: psycopg.Connection[Any]) -> None:
    """Ends a copy early; the transaction can only be rolled back after it."""
    connection.pgconn.get_cancel().cancel()
    while connection.pgconn.get_copy_data(0)[0] > 0:
        pass
    while connection.pgconn.get_result() is not None:
        pass

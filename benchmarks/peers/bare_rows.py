"""A row of a table as JSON by its key, as one would write it in a few lines of Starlette or of FastAPI.

``python -m benchmarks.peers.bare_rows starlette --database FILE --port PORT``
"""

import argparse
import sqlite3
import threading
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

SQL = "SELECT page, count FROM pages WHERE page = ?"


class Rows:
    """A connection for each thread."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._local = threading.local()

    def find(self, page: str) -> dict[str, Any] | None:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = sqlite3.connect(self._database)
            connection.row_factory = sqlite3.Row
        row = connection.execute(SQL, (page,)).fetchone()
        return None if row is None else dict(row)


def starlette_app(rows: Rows) -> Starlette:
    async def read(request: Request) -> JSONResponse:
        row = rows.find(request.path_params["page"])
        return JSONResponse({"error": "no such row"}, 404) if row is None else JSONResponse(row)

    return Starlette(routes=[Route("/pages/{page}", read)])


def fastapi_app(rows: Rows) -> FastAPI:
    app = FastAPI()

    @app.get("/pages/{page}")
    def read(page: str) -> dict[str, Any]:
        row = rows.find(page)
        if row is None:
            raise HTTPException(404, "no such row")
        return row

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["starlette", "fastapi"])
    parser.add_argument("--database", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    rows = Rows(options.database)
    app = starlette_app(rows) if options.kind == "starlette" else fastapi_app(rows)
    uvicorn.run(
        app, port=options.port, loop="uvloop", http="httptools", log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()

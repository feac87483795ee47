"""The server as ``headwater serve --no-dashboard`` runs it, for a view store that was filled by hand; no broker."""

import argparse
from pathlib import Path
from typing import Any

from headwater.serve.running import run
from headwater.serve.settings import ServeSettings
from headwater.streams.app import App
from headwater.streams.settings import load_stream_settings


def _declared() -> App:
    app = App("followed")
    app.stream("lines", "line string")

    @app.view(key="word")
    def words(lines: Any) -> Any:
        return lines

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("port", type=int)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    settings = load_stream_settings(data=options.data, store=options.store, bootstrap="127.0.0.1:1")
    run(_declared(), settings, ServeSettings(port=options.port, dashboard=False), lambda url: None)


if __name__ == "__main__":
    main()

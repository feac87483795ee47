"""Requests to build a view anew: a file each in ``<data>/replays``, which the application takes."""

import os
from pathlib import Path


class Replays:
    """The requests in a data directory.

    >>> import tempfile
    >>> replays = Replays(Path(tempfile.mkdtemp()))
    >>> replays.ask("words", "earliest")
    >>> replays.waiting()
    {'words': 'earliest'}
    >>> replays.done("words")
    >>> replays.waiting()
    {}
    """

    def __init__(self, data: Path) -> None:
        self._folder = data / "replays"

    def ask(self, view: str, start: str) -> None:
        """Asks for a view from a position: ``earliest`` or an ISO time."""
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f".{view}.{os.getpid()}"
        part.write_text(start)
        part.replace(self._folder / view)

    def waiting(self) -> dict[str, str]:
        """What was asked for and not done yet, by view."""
        if not self._folder.is_dir():
            return {}
        return {
            path.name: path.read_text() for path in self._folder.iterdir() if not path.name.startswith(".")
        }

    def done(self, view: str) -> None:
        """The request has been taken."""
        (self._folder / view).unlink(missing_ok=True)

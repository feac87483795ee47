"""The page of figures: every benchmark keeps a section of it and leaves the others alone."""

import re
from pathlib import Path


def keep_section(page: Path, title: str, text: str) -> None:
    """Replace the section ``## title`` of the page, or add it at the end.

    >>> import tempfile
    >>> page = Path(tempfile.mkdtemp()) / "page.md"
    >>> keep_section(page, "The log", "fast")
    >>> keep_section(page, "Streams", "faster")
    >>> keep_section(page, "The log", "fast again")
    >>> print(page.read_text(), end="")
    # Benchmarks
    <BLANKLINE>
    ## The log
    <BLANKLINE>
    fast again
    <BLANKLINE>
    ## Streams
    <BLANKLINE>
    faster
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    whole = page.read_text() if page.exists() else "# Benchmarks\n"
    head, *sections = re.split(r"^(?=## )", whole, flags=re.MULTILINE)
    section = f"## {title}\n\n{text.strip()}\n"
    at = next((at for at, one in enumerate(sections) if one.splitlines()[0] == f"## {title}"), None)
    if at is None:
        sections.append(section)
    else:
        sections[at] = section
    page.write_text("\n".join(f"{part.strip()}\n" for part in [head, *sections]))

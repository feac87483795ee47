"""Bounds on what clients may make a group remember.

Strings of newer versions have no bound of their own but the request's; the journal's keys hold 32,767 bytes.
"""

from collections.abc import Iterable

from kio.schema.errors import ErrorCode

from headwater.broker.groups.refusals import Refusal

MAX_CHARACTERS = 8_000  # of an id or a name: at four bytes each it fits into a key
MAX_MEMBER_BYTES = 4 << 20  # of what a member says when it joins; Kafka's journal takes a quarter of it


def check_texts(*texts: str | None) -> None:
    """Refuse ids and names that no journal could keep.

    >>> check_texts("group", None)
    >>> check_texts("x" * 8001)
    Traceback (most recent call last):
        ...
    headwater.broker.groups.refusals.Refusal: a name is longer than 8000 characters
    """
    if any(text is not None and len(text) > MAX_CHARACTERS for text in texts):
        raise Refusal(ErrorCode.invalid_request, f"a name is longer than {MAX_CHARACTERS} characters")


def check_size(parts: Iterable[bytes | str]) -> None:
    """Refuse more than a member may say.

    >>> check_size([b"x"] * 100)
    """
    if sum(map(len, parts)) > MAX_MEMBER_BYTES:
        raise Refusal(ErrorCode.invalid_request, f"a member says more than {MAX_MEMBER_BYTES} bytes")

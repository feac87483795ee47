"""What the file of producer ids says: the first id that nobody was given yet.

``DIR/producer-ids``  ``{"next": 2000, "checksum": ...}``; files of an earlier version hold the number alone

An id that is given out twice makes records vanish: those of the second producer are taken for repetitions of
the first one's. So the file has a checksum, and is held against the ids that are in the log.
"""

from headwater.log.sealed import Spoilt, seal, unseal

PRODUCER_IDS = "producer-ids"
LARGEST_GIVEN_OUT = 1 << 62  # no broker comes so far
# A larger id is one that a client has made up: going on above it, there would soon be no more ids.
LARGEST_BELIEVED = LARGEST_GIVEN_OUT >> 1
_LONGEST_NUMBER = 100


def written_next_id(next_id: int) -> bytes:
    """The file that says that ids from ``next_id`` on are free.

    >>> read_next_id(written_next_id(2000))
    2000
    """
    return seal({"next": next_id}, layout=0) + b"\n"


def read_next_id(raw: bytes) -> int:
    """The first free id by this file; Spoilt when it does not say.

    >>> read_next_id(b"3000")
    3000
    >>> read_next_id(written_next_id(2000).replace(b"2", b"3", 1))
    Traceback (most recent call last):
    ...
    headwater.log.sealed.Spoilt: its checksum does not match: something in it is not as it was written
    """
    is_bare = raw.strip().isdigit() and len(raw) < _LONGEST_NUMBER
    next_id = int(raw) if is_bare else unseal(raw).get("next")
    if type(next_id) is not int or not 0 <= next_id <= LARGEST_GIVEN_OUT:
        raise Spoilt("it holds no number that can be an id")
    return next_id

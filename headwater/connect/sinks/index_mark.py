"""The topics that an index was written from, in the ``_meta`` of its mapping. No I/O.

::

    {"_meta": {"headwater": {"shop.orders": "fr3pKnqxQ3eHzVdvRU8Ogw"}}}

Versions of documents are offsets: those of another topic under the same name cannot be compared with them. The mark is
part of the index, so that it goes with it into copies, and is gone when the index is.
"""

from collections.abc import Mapping
from typing import Any

_OURS = "headwater"


def topic_of(mappings: Any, topic: str) -> str:
    """The id of the topic that an index was written from, by the server's answer; "" when it does not say.

    >>> answer = {"orders": {"mappings": {"_meta": {"headwater": {"shop.orders": "fr3p"}}}}}
    >>> topic_of(answer, "shop.orders"), topic_of(answer, "shop.users"), topic_of({"orders": {}}, "shop.orders")
    ('fr3p', '', '')
    """
    return str(_part(_meta(mappings), _OURS).get(topic) or "")


def marked(mappings: Any, topic: str, id: str) -> dict[str, Any]:
    """The change of the mapping that says so; what else is in ``_meta`` stays.

    >>> marked({"orders": {"mappings": {"_meta": {"team": "shop"}}}}, "shop.orders", "fr3p")
    {'_meta': {'team': 'shop', 'headwater': {'shop.orders': 'fr3p'}}}
    """
    meta = _meta(mappings)
    return {"_meta": {**meta, _OURS: {**_part(meta, _OURS), topic: id}}}


def _meta(mappings: Any) -> Mapping[str, Any]:
    """That of the index; of an alias, which has one, its name is another."""
    index = next(iter(mappings.values()), None) if isinstance(mappings, dict) else None
    return _part(_part({"index": index}, "index", "mappings"), "_meta")


def _part(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = document
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}

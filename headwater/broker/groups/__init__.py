"""Consumer groups: both group protocols, committed offsets, and their journal.

Reading order: ``coordinator.py`` is what the broker sees, ``handlers_*.py`` turn requests into calls. Under
them ``classic.py`` and ``consumer.py`` are the two protocols, over ``classic_group.py`` and
``consumer_group.py``, the groups; ``commits.py`` and ``retention.py`` are what happens to offsets.
``records.py`` is what the journal says, ``ledger.py`` how changes reach it. ``assignors.py``,
``reconciliation.py`` and ``patterns.py`` are pure.
"""

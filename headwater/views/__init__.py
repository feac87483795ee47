"""The view store: tables that streams compute, kept in SQLite or PostgreSQL. Knows nothing of Spark."""

from headwater.views.filters import Either, Every, Filter, Order, Where
from headwater.views.model import (
    Batch,
    Change,
    Column,
    News,
    Progress,
    Reading,
    Snapshot,
    VersionInfo,
    ViewInfo,
    ViewSchema,
)
from headwater.views.store import ViewStore, open_store

__all__ = [
    "Batch",
    "Change",
    "Column",
    "Either",
    "Every",
    "Filter",
    "News",
    "Order",
    "Progress",
    "Reading",
    "Snapshot",
    "VersionInfo",
    "ViewInfo",
    "ViewSchema",
    "ViewStore",
    "Where",
    "open_store",
]

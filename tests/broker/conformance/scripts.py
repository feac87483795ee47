"""All scripts, by name. Importing the modules registers them."""

from tests.broker.conformance import (  # noqa: F401
    administration,
    broker_settings,
    cluster,
    producing,
    reading,
    settings,
    transactions,
    transactions_implicit,
    transactions_offsets,
    transactions_over_time,
)
from tests.broker.conformance.script import SCRIPTS

__all__ = ["SCRIPTS"]

"""The dashboard: what runs, how it is doing, and what it has computed, in a browser."""

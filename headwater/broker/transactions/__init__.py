"""Transactions: who may write under a transactional id, what its transaction touches, and how it ends."""

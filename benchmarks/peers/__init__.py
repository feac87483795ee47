"""The stream processors that a user could pick instead, each in an environment of its own."""

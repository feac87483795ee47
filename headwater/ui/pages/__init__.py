"""The pages of the dashboard, one a module."""

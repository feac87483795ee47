"""Where results go, each batch exactly once: topics, views, files."""

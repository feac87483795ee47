"""The demo: a shop whose database, web pages and sensors become live views. Run it: make demo."""

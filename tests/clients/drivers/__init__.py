"""One program for each client library; ``tests/clients/peer.py`` says what they are told and answer."""

"""What the tests stand on: real servers, jars and Debian packages."""

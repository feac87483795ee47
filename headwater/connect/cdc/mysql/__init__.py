"""Change data capture of MariaDB and MySQL from their binary log."""

"""Taking out of a database what capture has made there."""

from headwater.connect.cdc.options import CdcOptions


def remove_capture(options: CdcOptions) -> bool:
    """Removes slot and publication, or triggers and changelog; False when there was nothing. MySQL has nothing."""
    if options.database == "sqlite":
        from headwater.connect.cdc.sqlite.source import remove

        return remove(options)
    return options.database == "postgres" and _remove_from_postgres(options)


def _remove_from_postgres(options: CdcOptions) -> bool:
    from headwater.connect.cdc.postgres.catalog import ask, connect, do, identifier
    from headwater.connect.cdc.postgres.slot import drop_slot, slot_name, slot_state

    name = slot_name(options.logical_name)
    connection = connect(options.url)
    try:
        has_slot = slot_state(connection, name) is not None
        published = ask(connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", name)
        if has_slot:
            drop_slot(connection, name)
        if published:
            do(connection, f"DROP PUBLICATION {identifier(name)}")
        return has_slot or bool(published)
    finally:
        connection.close()

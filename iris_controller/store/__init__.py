"""The durable state: SQLite files, numbered migrations, one writer thread, readers with their own connections."""

"""Keys and tokens: who somebody says they are, signed. What they may do is decided by the server's roles table, not here."""

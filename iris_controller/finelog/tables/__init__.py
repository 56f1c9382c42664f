"""Registered tables: rows of measurements and events beside the log lines, and SQL over all of them.

Floors inside, imports only go down: service > {statements, keeper} > {sources, log_table} > {store, log_tail} > {admission, recovery,
rowfiles} > {books, registry} > columns. `sql_child` and `sql_check` run in a process of their own and import nothing of the store.
"""

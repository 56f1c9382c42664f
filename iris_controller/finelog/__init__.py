"""finelog: the store of log lines, a process of its own so that a flood of output never takes time from decisions.

Floors inside, imports only go down: main > service > {ingest, reader} > store > opening > {files, ledger} > {sidecar, wal} > {index,
records, batches, disk} > query. `client` stands apart.
"""

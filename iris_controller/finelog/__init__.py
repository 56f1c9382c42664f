"""finelog: the store of log lines, a process of its own so that a flood of output never takes time from decisions.

Floors inside, imports only go down: main > server > {service, endpoint} > {ingest, reader, waiters} > {candidates, groups} > store > opening >
{files, ledger} > {sidecar, wal} > {batches, disk, records} > index > query. `client` stands apart.
"""

"""finelog: the store of log lines, a process of its own so that a flood of output never takes time from decisions.

Floors inside, imports only go down: main > server > {service, endpoint} > {ingest, reader, waiters} > {candidates, groups} > store > opening >
{files, ledger, catalog, retention} > {sidecar, wal} > {batches, disk, records, steps} > index > query. `client` stands apart.

Beside them what works on segments, and loads pyarrow: {convert, compaction} > {windows, verify} > loglines > segments > {runs, trigrams, catalog}. Nothing
above imports it but inside the function that needs it, so a store that holds little stays small: `upkeep`, `segmented`, `store`, `opening`.
"""

"""Connections to a controller: gRPC, HTTP/1.1 with JSON, and the mixture that the command line uses.

All of them implement `iris_core.contracts.Client` or `AsyncClient`, raise the same errors, and may be swapped for
each other: gRPC is the wire of streams and of large messages, HTTP/1.1 starts a third faster and passes proxies that
know nothing of gRPC. Nothing heavy is imported with this package; `iris_core.connect.open_client` chooses and opens.
"""

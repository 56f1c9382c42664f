"""The vocabulary of Iris: ids, states, bands, resources, constraints, filters.

Everything here is a plain value or a pure function over plain values: no I/O,
no clock, no randomness, and no third-party import when a module is loaded.
Every other part of Iris imports this package and it imports none of them, so
a rule that two parts must agree on (what a valid id is, what a filter means)
has exactly one home.

The only exception these modules raise for bad input is ``ModelError``.
"""

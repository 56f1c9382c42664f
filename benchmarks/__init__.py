"""The figures of docs/performance.md, measured: `make bench`, or `python -m benchmarks T8 T12 --markdown`.

A figure is a ratio. Ours and its yardstick alternate within one run on one machine (A B A B …), and what is printed is the
median of both, so that a busy machine slows both sides. A yardstick that cannot be had is printed as `not measured`, never as
a number from another day. Nothing here gates a test, and nothing here is shipped.
"""

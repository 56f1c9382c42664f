"""Rollout and recovery as procedures: what is done, in which order, behind which gates, without a word about terminals (DESIGN §8).

A procedure is an async generator of events; one engine runs them all, from the command line and from the console. Nothing here
may change anything except inside a Mutation that an approved gate has named.
"""

"""Profiles of running processes with py-spy and memray: of an attempt, of the worker, of the controller (cli-auth-logs §4).

`targets` finds the processes, `running` runs a profiler and ends it, `cpu`, `threads` and `memory` each know one tool,
`failures` puts what tools say into one line with a remedy, `taking` is the door: one profile per target at a time.
"""

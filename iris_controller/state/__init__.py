"""The controller's memory and its transition kernel: values in, plan out; no I/O and no clock of their own.

`records` are immutable rows, `model` holds the committed ones, `overlay` collects one batch's changes on top of them, `kernel`
and `rollup` say what an event does to tasks, gangs and jobs.
"""

"""The agent of a worker host: dials the controller, runs attempts as processes, ships what they print.

Nothing ever dials the worker except for `/health`. It knows nothing of jobs beyond what a RunSpec says, decides no retry and
keeps no state that the controller could not replace: what it holds on disk (spool, attempt records) only bridges outages.
"""

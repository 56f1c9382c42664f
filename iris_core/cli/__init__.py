"""The command line: what `iris-core` runs, and `iris` with a subcommand.

A command's module is imported when that command runs, and what it needs (protobuf, a connection, YAML) inside its
functions, so that `--help` and completion cost little more than Python itself. One room writes to standard output
(`output`), one to standard error and exit codes (`diagnostics`). Must never import Textual.
"""

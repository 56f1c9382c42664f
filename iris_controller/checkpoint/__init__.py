"""Checkpoints: whole copies of the state in the object store, and the rules by which a controller starts from one.

`layout` says what a checkpoint is, `snapshot` copies a live database, `write` makes a checkpoint, `restore` checks one and opens it,
`choose` picks what a controller starts from, `owner` keeps a second controller off, `service` is the part inside a running
controller.
"""

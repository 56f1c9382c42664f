"""Segments of finelog in an object store: shipped while the store runs, and taken back when its disk is lost."""

"""Cluster files: where they lie, how they are read, what they say.

`places` knows the folders, `document` turns YAML into checked values that remember their line, `cluster` is the typed
model. Reading a file never contacts anything. YAML is imported when a file is read, not with this package.
"""

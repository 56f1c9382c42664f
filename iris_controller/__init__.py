"""The daemon: one loop that decides, one writer that stores, streams to workers and watchers."""

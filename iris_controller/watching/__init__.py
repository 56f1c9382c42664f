"""Watch, room by room: the hub, what a selector asks for, one client's stream, and how each kind of row comes about.

Jobs, tasks and workers follow committed batches. Every other kind is looked at as a whole while somebody watches it (`source`).
"""

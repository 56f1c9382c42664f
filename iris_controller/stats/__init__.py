"""Measurements and events on their way to finelog: what the controller and its workers write into the `iris.*` tables.

Decisions live in the controller's database; what is only measured, or only told, lives here and never holds anybody up.
"""

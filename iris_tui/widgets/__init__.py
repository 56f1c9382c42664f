"""Reusable pieces of a screen. They draw data that somebody else holds; none of them calls the network."""

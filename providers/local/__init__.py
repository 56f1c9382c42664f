"""This machine as a provider: worker processes under supervisors, an embedded controller."""

"""Fakes that ship: one of each protocol, deterministic and scripted, for tests and pictures. Never a stand-in at run time."""

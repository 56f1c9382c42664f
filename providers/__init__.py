"""Where work runs and where things are stored: implementations of the protocols in `iris_core.contracts`, and a fake of each."""

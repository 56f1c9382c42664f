"""One file and one style sheet per screen of the console. Found by name through `iris_tui.registry`, never imported by it."""

"""The kit of the console: shell, actions, keys, gate, widgets, connection state. Screens are built from it, in `screens`."""

"""The working directory that travels with a job: which files, and the archive they make.

`tree` decides what belongs to the workspace and looks at sizes only; `bundle` turns that into bytes. The root is that
of the git repository around the current directory, wherever in it the command is typed; outside git it is the current
directory itself. A task starts in that root.
"""

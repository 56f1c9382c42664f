"""A controller on a host that is reached by SSH: the connection, what is carried there, the object store on its disk, the tunnel.

Real `ssh` does the work, so that its configuration, agent, jump hosts and known hosts count as they do in a shell. Nothing is expected of
a host but sshd and a Python: the code that runs there travels with each command.
"""

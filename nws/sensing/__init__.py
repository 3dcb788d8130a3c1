"""The sensor process: one a host, light, on its own; ``python -m nws.sensing`` or ``nws sense``.

1. `options`: what it is told.
2. `courier`: brings measurements to the service, keeps them while it does not answer.
3. `schedule`: what is due when.
4. `roster`: which list of clique members may be gone by.
5. `party`: gives the members of `nws.clique` sockets, clocks and probes.
6. `process`: all of it, one loop.
7. `wire`, `stdio`, `dialogue`: the same sensors asked over standard streams, as over ssh.

It imports no NumPy, typer or FastAPI.
"""

"""The sensor process: one a host, light, on its own; ``python -m nws.sensing`` or ``nws sense``.

1. `process`: options, periodic tasks and the one loop that measures, reports and renews the lease.
2. `delivery`: the bounded queue of measurements to the service, or standard output in its place.
3. `clique_runtime`: sockets, clocks and probes for the members of `nws.clique`; `budget`: what
   probing may cost.
4. `dialogue`, `stdio`: the same sensors asked over standard streams, as over ssh.

It imports no NumPy, typer or FastAPI; `stdio` and all that it imports only the standard library.
"""

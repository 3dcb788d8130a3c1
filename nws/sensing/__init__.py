"""The sensor process: one a host, light, on its own; ``python -m nws.sensing`` or ``nws sense``.

1. `process`: options, sensors, and the thread that measures.
2. `delivery`, `reporter`: the bounded queue of measurements, and the thread that delivers them to the service;
   or standard output in its place.
3. `link_prober`, `budget`: link probes in turns that the service grants, and the limits of their cost.
4. `dialogue`, `stdio`: the same sensors asked over standard streams, as over ssh.

It imports no NumPy, click or FastAPI; `stdio` and all that it imports only the standard library.
"""

"""The `nws` command: the service, its sensors, and its clients."""

"""The `nws` command: the service, its sensors, and what clients ask of it."""

"""Cliques: which host may probe its links when, so that probes never measure each other.

1. `sites`: which hosts form a clique, and turns where one asker plans all probes.
2. `turns`: probe turns as leases that a service grants to its sensors.
"""

"""Isolation of a job on its CPUs, the strongest first: cpusets, systemd scopes, affinity, or a dry run.

1. `backend`: the contract, `IsolationBackend`, and the guarantee that a backend gives a `CpuContainer`.
2. `freezers`: stop or kill all processes of a container at one instant, and never the wrong process.
3. `cpusets` (both versions of the kernel's interface), `systemd_scope`, `affinity`, `dry_run`: the backends.
4. `detection`: tries which backend works on this host.

Users can test their own backend with the checks of `apples.topology.isolation.checks`.
"""

"""The load of the hosts of running jobs, after van Albada et al. 1999 ("Dynamite").

`reporter` samples one host, `remote` starts a reporter on each host over ssh, `monitor` collects their snapshots,
and `nodes` turns them into the loads that a scheduling policy is shown.
"""

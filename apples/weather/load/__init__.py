"""The load of the hosts of running jobs, after van Albada et al. 1999 ("Dynamite").

Read `snapshot` (the demand on a node and its free part, from the kernel's figures), `reporter` (samples one host),
`remote` (starts a reporter on each host over ssh), `monitor` (collects their snapshots), `series` (snapshots as
series of the weather service) and `nodes` (the loads that a scheduling policy sees). Front end: `commands`.
"""

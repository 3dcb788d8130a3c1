"""The live scheduler: the simulator's policies on real machines.

Pure: `live_job` (a job and the steps of its life), `state` (jobs and hosts, as the records of the log make them),
`orders` (what whoever runs the jobs is told, and what it says), `scheduler` (the machine: events in, records and
orders out). Around it: `log` (records are on the disk before anybody hears of them).
"""

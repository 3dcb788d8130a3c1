"""Scheduling policies for rigid, moldable, malleable and evolving jobs.

Read in this order: `policy` (what a policy sees and what it may decide), `policies` (one file
each), `profile` (free nodes over time), `mates` (SD-Policy's search for jobs to shrink), `cluster`
(carries decisions out, or says why not).
"""

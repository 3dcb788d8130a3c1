"""Dynamite's task migration: a sequential program that knows nothing of us, moved between hosts while it runs.

Read in this order: `movable` (what a program has open, and what of it cannot be moved), `criu` (the commands
that checkpoint and restart a process, built and never run), `working` (which CRIU of this machine does),
`keeper` (the program's parent on a host), `move` (the steps of a migration, who is asked what next and what a
failure leads to), `keepers` (the anchor's end of them), `anchor` (one such program as a job).
"""

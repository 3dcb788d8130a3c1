"""Other hosts over ssh: the commands, the checks of a host, and its measurements.

Read in this order: `ssh` (the command line, built and never run), `bootstrap` (programs that travel with the
connection, so that nothing of ours need be installed there), `ask` (one question to many hosts, with a deadline),
`probe` (the program that examines a host from inside), `fitness` (judges the answers), `addresses` (the address
of a name), `sharing` (which hosts are one machine), `connection` (one login a host, for all of this), `preflight`
(these together) and `leftovers` (processes of a dead run).
"""

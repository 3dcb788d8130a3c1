"""Other hosts over ssh: the commands, the checks of a host, and its measurements.

Read in this order: `ssh` (builds the command line and never runs it), `bootstrap` (sends programs over the
connection, so that apples need not be installed on the host), `ask` (one question to many hosts, with a time
limit), `probe` (the program that examines the host on which it runs), `fitness` (judges the answers), `addresses`
(IP addresses of names), `sharing` (logins shared by a user's jobs), `connection` (one login to a host for all
purposes), `preflight` (checks many hosts with these) and `leftovers` (processes of a dead run).
"""

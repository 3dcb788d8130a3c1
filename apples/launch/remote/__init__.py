"""Other hosts over ssh: what may be said to them, what they are, what they measure.

Read in this order: `ssh` (the command line, built and never run), `shipping` (programs that travel with
the connection, so that nothing of ours need be installed there), `ask` (one question to many hosts, with a
deadline), `look` (the program that looks at a host from inside), `fitness` (what was found, judged),
`addresses` (what number a name stands for), `connection` (one login a host, for all of this), `preflight`
(these together).
"""

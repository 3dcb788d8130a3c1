"""How a schedule becomes processes that say what they measure, and are gone afterwards.

Read in this order: `events` (what a program says), `task` (what it is told), `hydra` (the command line, built
and never run), `quota` (hosts that are slower than this machine), `bind` (becomes one rank), `watchdog`
(guards a run), `processes` (the agent's end of it), `run` (the protocol with its deadlines), `ending` (the words
for its end), then its users `calibrate` and `conformance`. The actuators stand on this package.
"""

"""What one decision knows: the Information Pool, and where its weather comes from.

Read `pool` (the pool itself: template, specifications, hosts, conditions, model, all of one moment),
`active` (what can run on this machine), `elsewhere` (what a run needs of other machines), `service`
(the weather service that is configured), `abroad` (the weather of other machines, over ssh; `history`
remembers it, `spreading` tells of links nobody probed), `sky` (recorded and live weather, of these
three and of this machine; a static decision loads none), `measured` (the pool of a job that runs),
`loading` (files and options in, a pool out).
"""

from apples.agent.information.active import available_here
from apples.agent.information.elsewhere import needs_of, own_files
from apples.agent.information.loading import at_a_glance, load_information, under_live_weather
from apples.agent.information.measured import as_measured
from apples.agent.information.pool import MODELS, InformationPool, offers, program_of, refusal
from apples.launch.remote.addresses import is_here
from apples.launch.remote.addresses import remote_hosts as elsewhere

__all__ = [
    "MODELS",
    "InformationPool",
    "as_measured",
    "at_a_glance",
    "available_here",
    "elsewhere",
    "is_here",
    "load_information",
    "needs_of",
    "offers",
    "own_files",
    "program_of",
    "refusal",
    "under_live_weather",
]

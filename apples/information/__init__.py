"""What one decision knows: the Information Pool, and where its weather comes from.

Read `pool` (the pool itself: template, specifications, hosts, conditions, model, all of one moment),
`active` (what can run on this machine), `sky` (static, recorded or live weather).
"""

from apples.information.active import available_here
from apples.information.loading import load_information, under_live_weather
from apples.information.pool import MODELS, InformationPool
from apples.information.sky import LiveSky, read_weather

__all__ = [
    "MODELS",
    "InformationPool",
    "LiveSky",
    "available_here",
    "load_information",
    "read_weather",
    "under_live_weather",
]

"""The Information Pool: all data of one decision (Berman et al. 1996, section 4.3).

Read `pool` (template, specifications, hosts, conditions and model at one moment, with the values derived from
them), then `loading` (make a pool from files and options, and update it with present measurements).
"""

from apples.agent.information.loading import load_information, measure_briefly
from apples.agent.information.pool import (
    MODELS,
    InformationPool,
    assumes_speed,
    available_here,
    is_measured,
    needs_of,
    offers,
    own_files,
    program_of,
    queue_seconds,
    refusal,
    speed_source,
    start_seconds,
)

__all__ = [
    "MODELS",
    "InformationPool",
    "assumes_speed",
    "available_here",
    "is_measured",
    "load_information",
    "measure_briefly",
    "needs_of",
    "offers",
    "own_files",
    "program_of",
    "queue_seconds",
    "refusal",
    "speed_source",
    "start_seconds",
]

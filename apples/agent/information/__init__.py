"""What one decision knows: the Information Pool (Berman et al. 1996, section 4.3).

Read `pool` (template, specifications, hosts, conditions and model, all of one moment; and what follows from
them), then `loading` (files and options in, a pool out, and the pool under what is measured now).
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

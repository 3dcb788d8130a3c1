"""The scheduling policies, by their names on the command line.

Read `rigid` (FCFS, first-fit, SJF), `easy`, `conservative`, `equipartition`, `slowdown_driven` (SD-Policy),
`slurm` (main and backfill schedulers under a priority), `migration` (EASY that moves jobs off loaded nodes:
Dynamite's decider, and payback), `topology_aware` (another policy's starts on the CPUs of one host).
`apples.simulation.run.KERNELS` lists the policies that also have a compiled kernel in `apples.simulation.kernels`.
"""

from collections.abc import Mapping

from apples.scheduling.policies.conservative import Conservative
from apples.scheduling.policies.easy import Easy
from apples.scheduling.policies.equipartition import Equipartition
from apples.scheduling.policies.migration import PaybackMigration, ThresholdMigration
from apples.scheduling.policies.rigid import FirstComeFirstServed, FirstFit, ShortestJobFirst
from apples.scheduling.policies.slowdown_driven import SlowdownDriven
from apples.scheduling.policies.slurm import SlurmBackfill
from apples.scheduling.policy import SchedulingPolicy

POLICIES: Mapping[str, type[SchedulingPolicy]] = {
    "fcfs": FirstComeFirstServed,
    "first_fit": FirstFit,
    "sjf": ShortestJobFirst,
    "easy": Easy,
    "conservative": Conservative,
    "equipartition": Equipartition,
    "sd": SlowdownDriven,
    "slurm": SlurmBackfill,
    "decider": ThresholdMigration,
    "migrate": PaybackMigration,
}

__all__ = [
    "POLICIES",
    "Conservative",
    "Easy",
    "Equipartition",
    "FirstComeFirstServed",
    "FirstFit",
    "PaybackMigration",
    "ShortestJobFirst",
    "SlowdownDriven",
    "SlurmBackfill",
    "ThresholdMigration",
]

"""What the operator of a daemon can set."""

from __future__ import annotations

from dataclasses import dataclass

from apples.errors import UsageError
from apples.topology.cpus import NO_CPUS, CpuSet


@dataclass(frozen=True, slots=True)
class Options:
    """Limits and times of one daemon.

    Attributes
    ----------
    sharing_factor
        The part of its own CPUs that may be taken from a malleable job.
    kill_seconds
        How long a job's processes are killed before its CPUs go to quarantine.
    claim_seconds
        An allocation that no process entered by then is released.
    watch_seconds
        Between two looks at foreign sets, orphans, quarantine and strays.
    most_jobs, most_cpus
        Of one principal; the operator is not limited.
    reserved
        CPUs that are never given.
    ignored
        Patterns (`fnmatch`) of paths of foreign sets that reserve nothing.
    mandatory, default
        The site's requirements: merged with the job's, key by key.

    Raises
    ------
    UsageError
        A value out of range. Permanent.
    """

    sharing_factor: float = 0.5
    kill_seconds: float = 2.0
    claim_seconds: float = 60.0
    watch_seconds: float = 1.0
    most_jobs: int = 256
    most_cpus: int = 1 << 16
    reserved: CpuSet = NO_CPUS
    ignored: tuple[str, ...] = ()
    mandatory: str = ""
    default: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.sharing_factor < 1:
            raise UsageError(f"sharing factor {self.sharing_factor}: 0 <= factor < 1 is wanted")
        for name in ("kill_seconds", "claim_seconds", "watch_seconds"):
            if not 0.01 <= getattr(self, name) <= 86_400:
                raise UsageError(f"{name} {getattr(self, name)}: 0.01 to 86400 is wanted")

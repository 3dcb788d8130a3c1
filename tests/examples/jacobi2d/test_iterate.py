from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from iterate import Clock, Reports
from patience import Patience


@dataclass
class Comm:
    """One rank's view of a gathering in which all ranks hear the same."""

    rank: int
    every: np.ndarray

    def Get_rank(self):  # noqa: N802 - MPI's name
        return self.rank

    def Get_size(self):  # noqa: N802 - MPI's name
        return len(self.every)

    def Iallgather(self, _mine, every):  # noqa: N802 - MPI's name
        every[...] = self.every
        return SimpleNamespace(Test=lambda: True)


@dataclass
class Sweeping:
    """What `Reports` needs of an iteration."""

    comm: Comm
    sweeps: int = 1
    clock: Clock = field(default_factory=Clock)
    transfers: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(settle=lambda: 1.0, later=[], comparing=1.0)
    )
    patience: Patience = field(default_factory=lambda: Patience(1.0))
    outcome: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(iterations=0, residual=0.0)
    )
    task: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            progress_seconds=0.5,
            of_rectangles=False,
            hosts=("ada", "bob"),
            strips=[SimpleNamespace(host=0), SimpleNamespace(host=1)],
            parameters=SimpleNamespace(iterations=1000, grid=100),
        )
    )


@pytest.mark.parametrize("elapsed", [0.0, 2.5])
def test_ranks_that_begin_at_different_moments_agree_on_every_report(elapsed, monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("iterate.time.perf_counter", lambda: now[0])
    dues = []
    for rank, paused in enumerate((0.0, 0.04)):  # a CPU quota may pause a rank here for many ms
        now[0] = 100.0 + paused
        sweeping = Sweeping(Comm(rank, np.full((2, 8), elapsed + 0.09)))
        reports = Reports(sweeping, 100.0 - elapsed, elapsed)
        due = []
        for _ in range(4):
            sweeping.comm.every = sweeping.comm.every + 0.11
            sweeping.outcome.iterations = reports.due
            reports.report_if_due()
            due.append(reports.due)
        dues.append(due)
    capsys.readouterr()
    assert dues[0] == dues[1]

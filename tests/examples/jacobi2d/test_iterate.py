from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from disturbances import Spikes
from iterate import BORDERS, Clock, Reports
from patience import Patience

import apples.program


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
        sweeping = Sweeping(Comm(rank, np.full((2, BORDERS + 2), elapsed + 0.09)))
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


def test_spikes_are_those_of_a_program_that_uses_apples():
    random = np.random.default_rng(1)
    seconds = np.where(random.random(2000) < 0.01, 0.5, random.lognormal(-7, 0.2, 2000))
    own, theirs = Spikes(), apples.program.Spikes()
    for one in seconds.tolist():
        own.add(one, 0.5 * one)
        theirs.add(one, 0.5 * one)
    assert own.excess == theirs.excess > 0
    assert own.processor_excess == theirs.processor_excess

"""Jobs that a policy holds back: they count, and are waited for as long as anything is to come."""

import numpy as np

from apples.scheduling import Hold, SchedulingPolicy, Start, Wake
from apples.simulation import SimulationConfig, rigid, simulate

ONE_AND_ONE = rigid(np.array([0.0, 1.0]), np.array([5.0, 5.0]), np.array([1, 1]), np.array([5, 5]))


class Night(SchedulingPolicy):
    """Starts every second job only from a time on."""

    def __init__(self, begins):
        self.begins = begins

    def decide(self, cluster):
        for job in cluster.queue:
            if job.id % 2 == 0:
                yield Hold(job.id, "not by day")
            else:
                yield Start(job.id, 1)
        if cluster.time < self.begins:
            yield Wake(self.begins)
        else:
            for job in cluster.held:
                yield Start(job.id, 1)


def test_a_job_that_is_held_until_a_time_starts_though_nothing_else_is_left():
    result = simulate(ONE_AND_ONE, Night(100.0), SimulationConfig(2))
    assert result.start.tolist() == [0.0, 100.0]
    assert result.completed.all()
    assert not result.held


def test_a_job_that_is_never_released_is_in_the_result_with_the_reason():
    class Never(Night):
        def decide(self, cluster):
            return (one for one in super().decide(cluster) if not isinstance(one, Wake))

    result = simulate(ONE_AND_ONE, Never(1e9), SimulationConfig(2))
    assert result.held == {2: "not by day"}
    assert result.completed.tolist() == [True, False]


def test_a_job_that_is_cancelled_while_it_is_held_is_held_no_more():
    config = SimulationConfig(2, cancellations={2: 3.0})
    result = simulate(ONE_AND_ONE, Night(100.0), config)
    assert not result.held
    assert result.completed.tolist() == [True, False]

import pytest
from sites import Site

from apples.jobs import store
from apples.supervision.job_processes import marked


@pytest.fixture
def site(tmp_path, monkeypatch):
    """What starts a scheduler of hosts of this machine, which is stopped and leaves nothing of its jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = []

    def started(policy="fcfs", *options):
        made.append(Site(tmp_path, policy, *options))
        made[-1].start()
        return made[-1]

    yield started
    for one in made:
        one.close()
    assert [job.id for job in store.jobs() if marked(job.id)] == []

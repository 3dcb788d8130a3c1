import contextlib

import pytest
from sites import Site, assert_no_job_is_left


@pytest.fixture
def site(tmp_path, monkeypatch):
    """What starts a scheduler of hosts of this machine, which is stopped and leaves nothing of its jobs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def started(policy="fcfs", *options):
            one = Site(tmp_path, policy, *options)
            stack.callback(one.close)
            one.start()
            return one

        yield started
    assert_no_job_is_left()

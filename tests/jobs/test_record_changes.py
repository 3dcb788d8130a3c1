"""What the kernel tells of the records of jobs: where to look, however much of it there is."""

from pathlib import Path

import pytest

from apples.jobs import RecordChanges, store

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")
MOST_QUEUED = 100_000


@pytest.fixture
def changes():
    found = RecordChanges()
    yield found
    found.close()


@pytest.fixture
def jobs(tmp_path):
    return [store.create({}, "", where=tmp_path) for _ in range(3)]


def told(changes):
    """Return all that has been told."""
    found = set()
    while news := changes.wait(0.0):
        found |= news
    return found


def test_a_record_that_was_replaced_is_told_of_and_no_other(changes, jobs):
    assert all(changes.watch(job) for job in jobs)
    jobs[1].write(jobs[1].record())
    assert told(changes) == {jobs[1].id}
    assert told(changes) == set()


def test_the_end_of_who_holds_the_lock_is_told_of_and_who_asks_for_it_is_not(changes, jobs):
    with jobs[0].supervising():
        changes.watch(jobs[0])
        assert jobs[0].supervised()
        assert told(changes) == set()
    assert told(changes) == {jobs[0].id}


def test_lines_of_a_log_tell_nothing(changes, jobs):
    changes.watch(jobs[0])
    for _ in range(3):
        with jobs[0].log.open("a") as stream:
            stream.write("line\n")
    assert told(changes) == set()


def test_a_job_that_is_forgotten_is_told_of_no_more_and_one_that_is_gone_hinders_no_other(
    changes, jobs
):
    for job in jobs:
        changes.watch(job)
    changes.forget(jobs[0])
    jobs[0].write(jobs[0].record())
    (jobs[1].folder / "lock").unlink()
    jobs[2].write(jobs[2].record())
    assert told(changes) - {jobs[1].id} == {jobs[2].id}


def test_of_a_job_that_has_no_lock_nothing_is_told(changes, jobs):
    (jobs[0].folder / "lock").unlink()
    assert not changes.watch(jobs[0])
    jobs[0].write({})
    assert told(changes) == set()


def test_where_the_kernel_has_dropped_what_it_had_to_tell_all_are_told_of(changes, jobs):
    most = int(QUEUE.read_text())
    if most > MOST_QUEUED:
        pytest.skip(f"the kernel keeps {most} events")
    for job in jobs:
        changes.watch(job)
    for number in range(most):  # two that are alike and next to each other are one
        file = jobs[number % 2].folder / "a"
        file.touch()
        file.rename(file.with_name("b"))
    jobs[2].write(jobs[2].record())
    assert told(changes) == {job.id for job in jobs}
    jobs[1].write(jobs[1].record())
    assert told(changes) == {jobs[1].id}


def test_one_that_is_closed_watches_nothing(changes, jobs):
    changes.close()
    assert not changes.watch(jobs[0])
    assert changes.wait(0.0) == set()

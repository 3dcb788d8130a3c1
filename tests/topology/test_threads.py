"""The job's side: a resize is seen at the next safe point, threads follow, the daemon hears of it."""

import ctypes.util
import os
import threading

import pytest
from daemons import Daemon
from waiting import until

from apples.errors import LaunchError
from apples.topology import JOB_VARIABLE, SOCKET_VARIABLE, JobLink, Threads, set_threads


class Recorder:
    """Remembers to how many threads it was told to go."""

    def __init__(self):
        self.said = []

    def __call__(self, count):
        self.said.append(count)
        return {"recorded": count}


def test_a_change_of_mask_is_noticed_at_the_next_safe_point():
    mine = os.sched_getaffinity(0)
    setting = Recorder()
    threads = Threads(link=None, setting=setting)
    assert threads.adapt() is None
    try:
        os.sched_setaffinity(0, {min(mine)})
        change = threads.adapt()
        if len(mine) == 1:
            assert change is None
            return
        assert (list(change.after), change.threads) == ([min(mine)], 1)
        assert change.pools == {"recorded": 1}
        assert threads.adapt() is None
    finally:
        os.sched_setaffinity(0, mine)
    assert threads.adapt().threads == len(mine)
    assert setting.said == [len(mine), 1, len(mine)]


def test_ranks_of_one_host_divide_its_cpus_and_each_has_one_thread_at_least():
    mine = len(os.sched_getaffinity(0))
    assert Threads(ranks=mine, setting=Recorder()).threads == 1
    assert Threads(ranks=100 * mine, setting=Recorder()).threads == 1


def test_loaded_pools_are_set(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    import numpy as np

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = {p["filepath"]: p["num_threads"] for p in threadpoolctl.threadpool_info()}
    assert before, f"no pool is loaded by numpy {np.__version__} ({ctypes.util.find_library('c')})"
    try:
        assert set_threads(1)
        assert {p["num_threads"] for p in threadpoolctl.threadpool_info()} == {1}
        assert os.environ["OMP_NUM_THREADS"] == "1"
    finally:
        controller = threadpoolctl.ThreadpoolController()
        for pool in controller.lib_controllers:
            pool.set_num_threads(before.get(pool.filepath, len(os.sched_getaffinity(0))))


def test_numba_is_set_where_it_is_loaded_and_not_beyond_what_it_can():
    numba = pytest.importorskip("numba")
    most = numba.config.NUMBA_NUM_THREADS
    before = numba.get_num_threads()
    try:
        assert set_threads(10_000)["numba"] == most
        assert set_threads(1)["numba"] == 1
        assert numba.get_num_threads() == 1
    finally:
        set_threads(before)


def test_a_job_that_follows_adapts_before_it_loses_cpus_and_after_it_has_them_back():
    with Daemon() as daemon:
        daemon.ask("allocate", job="mate", count=8, least=2, until="told")
        link = JobLink(str(daemon.socket), "mate")
        setting = Recorder()
        # The job's own mask: the daemon's machine is not this one, whose CPUs may be just those it grants.
        threads = Threads(link=link, setting=setting, affinity=lambda: range(8))
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                daemon.ask(
                    "allocate",
                    job="guest",
                    count=4,
                    least=1,
                    share=True,
                    until="told",
                    seconds=60.0,
                )
            )
        )
        asking.start()
        until(lambda: threads.adapt() is not None)
        asking.join(120)
        assert answers[0]["mates"] == {"mate": "acknowledged"}
        assert setting.said[-1] == 4
        daemon.ask("deallocate", job="guest")
        until(lambda: threads.adapt() is not None)
        assert setting.said[-1] == 8
        link.close()


def test_a_resize_is_acknowledged_by_all_ranks_or_not_at_all():
    with Daemon() as daemon:
        daemon.ask("allocate", job="two", count=8, least=2, until="told")
        links = [JobLink(str(daemon.socket), "two") for _ in range(2)]
        ranks = [
            Threads(2, link=link, setting=Recorder(), affinity=lambda: range(8)) for link in links
        ]
        answers = []

        def resize():
            fields = {"job": "two", "count": 4, "seconds": 60.0}
            answers.append(daemon.ask("resize", **fields))

        asking = threading.Thread(target=resize)
        asking.start()
        until(lambda: ranks[0].adapt() is not None)
        assert daemon.jobs["two"]["cpus"] == "0-7"  # the other rank still runs on all of them
        links[1].close()  # a rank that is gone need not say anything
        asking.join(120)
        assert answers[0]["heard"] == "acknowledged"
        assert daemon.jobs["two"]["cpus"] == "0-3"
        links[0].close()


def test_without_a_daemon_the_mask_is_watched_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setenv(JOB_VARIABLE, "job")
    assert JobLink.from_environment() is None
    with pytest.raises(LaunchError) as raised:
        JobLink(str(tmp_path / "nothing"), "job")
    assert raised.value.code == "daemon-unreachable"
    assert raised.value.fields["address"] == str(tmp_path / "nothing")
    with Daemon() as daemon, pytest.raises(LaunchError) as raised:
        JobLink(str(daemon.socket), "ghost")
    assert (raised.value.code, raised.value.fields["job"]) == ("job-unknown", "ghost")


def test_a_daemon_that_goes_away_ends_nothing():
    daemon = Daemon()
    with daemon:
        daemon.ask("allocate", job="mate", count=8, least=2, until="told")
        link = JobLink(str(daemon.socket), "mate")
        threads = Threads(link=link, setting=Recorder())
    assert threads.adapt() is None
    assert not link.open
    link.acknowledge(3)
    assert threads.adapt() is None

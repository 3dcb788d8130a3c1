"""When hosts that are other machines are asked what is left on them, and what is said of it."""

import threading
from collections import Counter
from contextlib import contextmanager

import pytest
from waiting import until

from apples.cluster import CHECKS_AT_ONCE, IDLE_SECONDS, LAST, HostAnswer, HostLeft, HostLooks
from apples.errors import LaunchError
from apples.resources import Host

JOB = "0000abcd"


class Machines:
    """Other machines that hold what the test says, and what was said of them."""

    def __init__(self, *names, every=None):
        self.now = 0.0
        self.there = Counter()
        self.cut = set()
        self.asked, self.said = [], []
        self.hold = None
        self.looks = HostLooks(
            [Host(name) for name in names], {"here"}, lambda: self.now, self.said.append, self.look,
            every,
        )  # fmt: skip

    def look(self, host, jobs):
        if self.hold is not None:
            self.hold(host)
        self.asked.append((host.name, dict(jobs)))
        if host.name in self.cut:
            raise LaunchError(f"{host.name}: no route")
        for job, over in jobs.items():
            if over and self.there[host.name, job] != "stuck":
                del self.there[host.name, job]
        return {job: 1 if self.there[host.name, job] else 0 for job in jobs}

    def step(self, seconds=0.0, used=()):
        """Let time pass, and all looks that are due then be made."""
        self.now += seconds
        self.looks.step(set(used))
        until(self.looks.idle)
        news, self.said[:] = list(self.said), []
        return news

    @contextmanager
    def looking(self, seconds):
        """Be in the midst of the looks that are due after some seconds, which end with this."""
        begun, go_on = threading.Event(), threading.Event()

        def slow(_host):
            begun.set()
            go_on.wait(30)

        self.hold = slow
        self.now += seconds
        self.looks.step(set())
        assert begun.wait(30)
        try:
            yield
        finally:
            go_on.set()
            self.hold = None
            until(self.looks.idle)


@pytest.fixture
def machines():
    made = []

    def some(*names, **options):
        made.append(Machines(*names, **options))
        return made[-1]

    yield some
    for one in made:
        one.looks.close()


def test_a_host_is_said_to_answer_once_and_looked_at_now_and_then(machines):
    m = machines("ada")
    assert m.step() == [HostAnswer("ada")]
    assert m.step(IDLE_SECONDS - 1.0) == []
    assert len(m.asked) == 1
    assert m.step(1.0) == []
    assert len(m.asked) == 2
    assert m.step(IDLE_SECONDS, used=["ada"]) == []
    assert len(m.asked) == 2  # a job says itself whether its host is there


def test_a_host_was_left_when_it_says_so_and_what_is_over_is_killed_there(machines):
    m = machines("ada", "bob")
    m.step()
    m.there["ada", JOB] = "works"
    assert m.looks.left(1, 1, JOB, "ada", 3)
    assert m.step(1.0) == []
    assert m.asked[-1] == ("ada", {JOB: False})
    m.there.clear()
    assert m.step(1.0) == [HostLeft(1, 1, "ada", 3)]
    m.there["bob", JOB] = "works"
    m.looks.left(1, 1, JOB, "bob", LAST)
    assert m.step(1.0) == [HostLeft(1, 1, "bob", LAST)]
    assert m.asked[-1] == ("bob", {JOB: True})


def test_processes_that_stay_are_looked_for_again_and_ever_more_seldom(machines):
    m = machines("ada")
    m.step()
    m.there["ada", JOB] = "stuck"
    m.looks.left(1, 1, JOB, "ada", LAST)
    for _ in range(600):
        assert m.step(0.1) == []
    assert 10 <= len(m.asked) <= 20
    m.there.clear()
    assert m.step(5.0) == [HostLeft(1, 1, "ada", LAST)]


def test_a_host_that_cannot_be_asked_is_lost_with_its_reason_and_comes_back_by_itself(machines):
    m = machines("ada")
    m.step()
    m.cut.add("ada")
    m.looks.left(1, 1, JOB, "ada", LAST)
    assert m.step(1.0) == [HostAnswer("ada", "no route")]
    assert m.looks.silent() == ["ada"]
    for _ in range(100):
        assert m.step(1.0, used=["ada"]) == []
    assert len(m.asked) <= 12
    m.cut.clear()
    assert m.step(20.0) == [HostAnswer("ada"), HostLeft(1, 1, "ada", LAST)]
    assert m.looks.silent() == []


def test_a_host_that_somebody_else_has_missed_is_lost_and_looked_at_at_once(machines):
    m = machines("ada")
    m.step()
    for _ in range(2):
        m.looks.miss("ada", "no daemon")
    assert m.looks.silent() == ["ada"]
    assert m.step() == [HostAnswer("ada", "no daemon"), HostAnswer("ada")]


@pytest.mark.more
def test_a_host_that_answers_but_cannot_be_used_is_lost_for_longer_each_time(machines):
    m = machines("ada", every=2.0)
    m.step()
    lost, back = HostAnswer("ada", "no CPUs"), HostAnswer("ada")
    for seconds in (0.0, 5.0, 15.0, 60.0, 60.0):
        m.looks.miss("ada", lost.reason)
        m.looks.miss("ada", lost.reason)  # to another start of that moment
        assert m.step() == ([lost] if seconds else [lost, back])
        if seconds:
            assert m.step(seconds - 1.0) == []
            assert m.step(1.0) == [back]
    for forgotten in (
        lambda: [m.step(2.0) for _ in range(400)],
        lambda: m.looks.used(["ada", "eve"]),
    ):
        forgotten()
        m.looks.miss("ada", lost.reason)
        assert m.step() == [lost, back]


def test_a_host_that_is_lost_because_it_cannot_be_used_is_asked_what_is_left_there(machines):
    m = machines("ada", every=2.0)
    m.step()
    for _ in range(4):
        m.step(60.0)
        m.looks.miss("ada", "no CPUs")
    m.step()
    assert m.looks.silent() == ["ada"]
    m.looks.left(1, 1, JOB, "ada", LAST)
    assert m.step() == [HostLeft(1, 1, "ada", LAST)]
    m.cut.add("ada")  # it is down now
    assert m.step(2.0) == [HostAnswer("ada", "no route")]
    m.cut.clear()
    assert m.step(60.0) == [HostAnswer("ada")]


def test_a_look_from_before_a_miss_says_nothing_of_it(machines):
    m = machines("ada")
    m.step()
    with m.looking(IDLE_SECONDS):
        m.now += 1.0
        m.looks.miss("ada", "no CPUs")
    assert m.looks.silent() == ["ada"]
    assert m.step()[-1] == HostAnswer("ada")


def test_hosts_that_cost_little_are_looked_at_as_often_where_jobs_use_them(machines):
    m = machines("ada", every=2.0)
    m.step()
    for _ in range(5):
        m.step(2.0, used=["ada"])
    assert len(m.asked) == 6
    m.cut.add("ada")
    assert m.step(2.0, used=["ada"]) == [HostAnswer("ada", "no route")]
    m.cut.clear()
    assert m.step(2.0) == [HostAnswer("ada")]


def test_backoff_of_a_host_that_does_not_answer_holds_under_a_shorter_interval(machines):
    m = machines("ada", every=2.0)
    m.step()
    m.cut.add("ada")
    for _ in range(100):
        m.step(1.0, used=["ada"])
    assert len(m.asked) <= 12
    m.cut.clear()
    assert m.step(20.0) == [HostAnswer("ada")]


def test_what_was_asked_during_a_look_is_asked_by_the_next(machines):
    """Its answer is of another moment: by then the attempt may have come and gone again."""
    m = machines("ada")
    m.step()
    m.looks.left(1, 1, JOB, "ada", 1)
    with m.looking(1.0):
        m.looks.left(1, 1, JOB, "ada", 2)
        m.looks.left(2, 1, "0000beef", "ada", LAST)
    assert m.said == [HostLeft(1, 1, "ada", 1)]
    assert m.step()[1:] == [HostLeft(1, 1, "ada", 2), HostLeft(2, 1, "ada", LAST)]


def test_many_hosts_are_asked_a_few_at_a_time_and_each_by_one_look(machines):
    names = [f"h{k}" for k in range(40)]
    m = machines(*names)
    entered, all_in, leave, lock = [], threading.Event(), threading.Event(), threading.Lock()

    def counted(host):
        with lock:
            entered.append(host.name)
            if len(entered) == CHECKS_AT_ONCE:
                all_in.set()
        leave.wait(30)

    m.hold = counted
    m.looks.step(set())
    assert all_in.wait(30)
    m.looks.step(set())
    assert len({*entered}) == len(entered) == CHECKS_AT_ONCE  # the others wait for these
    leave.set()
    assert len(m.step()) == 40
    assert sorted(entered) == sorted(names)


def test_parts_of_this_machine_are_not_asked_and_hosts_that_left_the_list_are_lost(machines):
    m = machines("ada")
    assert not m.looks.left(1, 1, JOB, "here", 1)
    assert m.looks.left(1, 1, JOB, "gone", 1)
    (answer,) = m.said
    assert (answer.host, bool(answer.reason)) == ("gone", True)


def test_a_host_that_was_taken_back_is_asked_until_it_cannot_be_and_is_empty_then(machines):
    m = machines("ada")
    m.step()
    m.there["ada", JOB] = "stuck"
    m.looks.left(1, 1, JOB, "ada", LAST)
    m.looks.end("ada")
    assert m.step(1.0) == []
    m.cut.add("ada")
    assert m.step(5.0) == [HostAnswer("ada", "no route"), HostLeft(1, 1, "ada", LAST)]
    count = len(m.asked)
    assert m.step(100.0) == []
    assert (len(m.asked), m.looks.silent()) == (count, ["ada"])  # nobody looks any more
    m.cut.clear()
    m.looks.join(Host("ada"), here=False)
    m.looks.join(Host("zoe"), here=True)
    assert m.step() == [HostAnswer("zoe"), HostAnswer("ada")]
    assert not m.looks.left(1, 1, JOB, "zoe", LAST)

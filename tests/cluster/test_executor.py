"""The jobs of a live scheduler as jobs of the job service: what is begun, and what never is."""

import os
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from waiting import until

from apples.cluster import (
    ESTIMATE_SECONDS,
    LAST,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostLeft,
    HostLooks,
    JobReport,
    JobServiceExecutor,
    JobVerbs,
    ResizeOrder,
    SilentDaemonError,
    StartOrder,
    question_key,
)
from apples.errors import DeadlineError, InfeasibleError, LaunchError
from apples.jobs import store
from apples.resources import Host

START = StartOrder(1, 1, 1, "0000abcd", ("ada", "bob"), {"template": "none.toml"})
END = EndOrder(1, 1, 1, "0000abcd", ("ada", "bob"))


class Watched:
    """An executor, and all that it has reported."""

    def __init__(self, tmp_path, **options):
        self.executor = JobServiceExecutor(
            "lab", tmp_path / "h.toml", time.monotonic, lambda: None, **options
        )
        self.said = []

    def hears(self, order, count):
        """Have an order be carried out, after which there are so many reports in all."""
        self.executor.carry_out([order])
        until(lambda: self.said.extend(self.executor.reports()) or len(self.said) == count)

    def hears_of_verification(self):
        """Return the ends of the verification in all reports of a running attempt."""
        self.said += self.executor.reports()
        reports = (one for one in self.said if isinstance(one, JobReport))
        return [one.verifying_until for one in reports if one.phase is AttemptPhase.RUNNING]

    def ended(self):
        self.said += self.executor.reports()
        phases = [getattr(one, "phase", None) for one in self.said]
        left = {one.host for one in self.said if isinstance(one, HostLeft) and one.epoch == LAST}
        return AttemptPhase.ENDED in phases and left == {"ada", "bob"}


@pytest.fixture
def watching(tmp_path, monkeypatch):
    """Return a function that makes an executor with other verbs than the job service's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = []

    def watch(lock=None, **verbs):
        made.append(Watched(tmp_path, verbs=JobVerbs(**verbs), lock=lock))
        return made[-1]

    yield watch
    for one in made:
        one.executor.close()


@pytest.fixture
def watched(watching):
    return watching()


def test_an_attempt_that_was_ended_before_it_began_never_begins(watching):
    begun = []
    watched = watching(begin=begun.append)
    watched.executor.carry_out([END])
    until(watched.ended)
    watched.executor.carry_out([START])
    until(lambda: not watched.executor.orders_in_progress())
    assert begun == []
    assert store.job("0000abcd").record()["state"] == "cancelled"


def test_an_order_to_end_does_not_meet_one_to_start_half_way(watching):
    """It would find a folder and no supervisor, say that all is over, and the job would run."""
    go_on, at_it = threading.Event(), threading.Event()

    def slow(_job):
        at_it.set()
        go_on.wait(30)

    watched = watching(begin=slow)
    watched.executor.carry_out([START])
    assert at_it.wait(30)
    watched.executor.carry_out([END])
    assert watched.executor.orders_in_progress() == {(False, 1, 1)}
    go_on.set()
    until(lambda: not watched.executor.orders_in_progress())
    watched.executor.carry_out([END])
    until(watched.ended)


def test_end_of_a_job_does_not_wait_for_resizes(watching):
    go_on, moving = threading.Event(), []

    def slow(identifier, _hosts):
        moving.append(identifier)
        go_on.wait(30)

    watched = watching(control=lambda _: Talking(False), resize=slow)
    resizes = [ResizeOrder(1, job, 1, f"{job:08x}", 1, ("cleo",)) for job in range(2, 42)]
    for order in resizes:
        running(order.folder)
    watched.executor.carry_out(resizes)
    try:
        until(lambda: len(moving) >= 8)
        watched.executor.carry_out([END])
        until(lambda: (False, 1, 1) not in watched.executor.orders_in_progress(), 60.0)
        assert store.job("0000abcd").record()["state"] == "cancelled"
    finally:
        go_on.set()


class Talking:
    """A job's control, which says whether it is at something."""

    def __init__(self, busy):
        self.busy = busy

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def status(self):
        return {"busy": self.busy}


@pytest.mark.parametrize("busy", [True, False])
def test_an_order_to_a_job_that_is_still_at_another_is_left_to_be_given_again(watching, busy):
    """Whoever gave it the other may have been restarted: to say that this was refused would be wrong soon."""
    moved = []
    watched = watching(control=lambda _: Talking(busy), resize=lambda *words: moved.append(words))
    with running("0000abcd").supervising():
        watched.executor.carry_out([ResizeOrder(1, 1, 1, "0000abcd", 1, ("ada", "bob"))])
        until(lambda: not watched.executor.orders_in_progress())
    said = [one for one in watched.executor.reports() if getattr(one, "epoch", 0) == 1]
    assert (len(moved), bool(said)) == ((0, False) if busy else (1, True))


def test_an_attempt_whose_starter_died_before_its_supervisor_is_begun_by_the_next(watching):
    begun = []
    watched = watching(begin=begun.append)
    store.create({}, "", identifier="0000abcd")
    watched.executor.carry_out([AskOrder(1, 1, 2, "0000abcd", False)])
    until(lambda: not watched.executor.orders_in_progress())
    assert [one.phase for one in watched.executor.reports()] == [AttemptPhase.ABSENT]
    watched.executor.carry_out([START])
    until(lambda: not watched.executor.orders_in_progress())
    assert [job.id for job in begun] == ["0000abcd"]


def test_an_attempt_whose_record_was_not_completed_is_over_and_never_began(watched):
    (store.folder() / "0000abcd").mkdir()
    watched.executor.carry_out([START])
    until(watched.ended)
    assert store.StoredJob(store.folder() / "0000abcd").record()["exit_code"] == 4


def test_an_attempt_whose_folder_is_gone_is_over_and_one_that_never_was_is_absent(watched):
    watched.executor.carry_out([AskOrder(1, 1, 1, "0000abcd", False)])
    until(lambda: not watched.executor.orders_in_progress())
    assert [one.phase for one in watched.executor.reports()] == [AttemptPhase.ABSENT]
    watched.executor.carry_out(
        [AskOrder(1, 1, 1, "0000abcd", True, (("ada", LAST), ("bob", LAST)))]
    )
    until(watched.ended)


def test_a_job_is_estimated_again_when_one_of_its_files_was_written_anew(watching, tmp_path):
    calls = []

    def call(**asked):
        calls.append(asked)
        return {"seconds": 10.0 * len(calls)}

    watched = watching(ask=call)
    template = tmp_path / "t.toml"
    template.write_text("one")
    order = EstimateOrder(1, 1, 2, {"template": str(template), "user": None})

    def estimates(count):
        watched.executor.carry_out([order])
        until(
            lambda: watched.said.extend(watched.executor.reports()) or len(watched.said) == count,
            30,
        )
        return [one.seconds for one in watched.said]

    estimates(1)
    assert estimates(2) == [10.0, 10.0]
    os.utime(template, ns=(1, 1))
    assert estimates(3) == [10.0, 10.0, 20.0]


def test_a_model_that_was_asked_the_same_for_another_job_is_not_asked_again(watching):
    calls = []

    def call(**asked):
        calls.append(asked["hosts"])
        if asked["hosts"] == 2:
            raise InfeasibleError("no plan", code="hosts-infeasible")
        return {"seconds": 5.0, "choices": [[["bob"], 3.0], [["ada"], 4.0]]}

    watched = watching(ask=call)

    def hears(*asked):
        for job, count in asked:
            order = EstimateOrder(
                job, 1, count, {"template": "t.toml"}, among=("ada", "bob", "cleo")
            )
            watched.hears(order, job)

    hears((1, 1), (2, 1), (3, 2), (4, 2))
    assert calls == [1, 2]
    sets = ((("bob",), 3.0), (("ada",), 4.0))
    assert [one.choices for one in watched.said] == [sets, sets, (), ()]
    assert [one.seconds for one in watched.said] == [5.0, 5.0, None, None]
    watched.hears(EstimateOrder(5, 1, 1, {"template": "t.toml"}), 5)
    assert (len(calls), watched.said[-1].choices) == (3, None)  # its hosts were not asked about


def answers(*given):
    """Return a verb that gives these answers, of which the last stands, and the calls of it."""
    calls = []

    def call(**asked):
        calls.append(asked)
        found = given[min(len(calls), len(given)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    return call, calls


ESTIMATED = EstimateOrder(1, 1, 2, {"template": "t"})


def test_lost_child_is_not_kept_as_a_models_answer(watching):
    call, calls = answers(LaunchError("no child", code="child-lost"), {"seconds": 3.0})
    watched = watching(ask=call)
    for count in (1, 2, 3):
        watched.hears(ESTIMATED, count)
    assert len(calls) == 2
    assert [one.seconds or 0.0 for one in watched.said] == [0.0, 3.0, 3.0]


def test_a_model_has_a_time_limit(watching):
    call, calls = answers({"seconds": 3.0})
    watching(ask=call).hears(ESTIMATED, 1)
    assert calls[0]["seconds"] == ESTIMATE_SECONDS


def test_a_model_that_never_returns_holds_up_estimates_once_for_all_jobs_that_are_alike(watching):
    call, calls = answers(DeadlineError("no answer", code="child-timeout"))
    watched = watching(ask=call)
    for count in (1, 2):
        watched.hears(ESTIMATED, count)
    assert len(calls) == 1


def test_questions_about_jobs_are_known_by_a_short_name():
    work = {"template": "t", "settings": "x" * 100_000}
    assert len(question_key(work, 2)) == 64
    assert question_key(work, 2) != question_key(work, 3)


class Looking:
    """The lock of an executor; each release notes the hosts of all attempts."""

    def __init__(self):
        self.lock, self.executor, self.seen = threading.Lock(), None, set()

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        if self.executor is not None:
            self.seen |= {frozenset(hosts) for hosts in self.executor.attempt_hosts().values()}
        self.lock.release()


def test_an_attempt_has_its_hosts_from_when_it_is_watched(watching):
    """Looked at in between, it would be over, and have left no host."""
    looking = Looking()
    watched = watching(lock=looking)
    looking.executor = watched.executor
    watched.executor.carry_out([END])
    until(watched.ended)
    assert looking.seen == {frozenset(("ada", "bob"))}


def test_hosts_that_are_gone_through_do_not_change_with_the_next_order(watched):
    job = running("0000abcd")
    with job.supervising():
        for hosts in (("ada",), ("ada", "bob")):
            leaving = tuple((host, LAST) for host in hosts)
            (found,) = watched.executor.attempt_hosts().values() or ((),)
            listed = iter(found)
            watched.executor.carry_out([AskOrder(1, 1, 1, "0000abcd", True, leaving)])
            until(lambda: not watched.executor.orders_in_progress())
        assert list(listed) == ["ada"]


class Looks:
    """Looks at hosts of which the first fails."""

    def __init__(self):
        self.steps = 0

    def step(self, _used):
        self.steps += 1
        if self.steps == 1:
            raise RuntimeError("can't start new thread")

    def left(self, *_):
        return False

    def silent(self):
        return []

    def close(self):
        pass


def test_jobs_are_watched_on_after_a_look_at_hosts_that_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    looks = Looks()
    one = JobServiceExecutor(
        "lab", tmp_path / "h.toml", time.monotonic, lambda: None, looks=lambda _: looks
    )
    try:
        until(lambda: looks.steps > 1, 60)
    finally:
        one.close()


def test_a_record_that_was_read_during_a_move_is_read_again_when_that_is_over(watching):
    """It was reported without its hosts, and the job may not write again for long."""
    at_it, go_on = threading.Event(), threading.Event()

    def busy():
        at_it.set()
        go_on.wait(60)
        return {"busy": True}

    watched = watching(control=lambda _: nullcontext(SimpleNamespace(status=busy)))
    job = running("0000abcd")

    def told(hosts):
        watched.said += watched.executor.reports()
        return any(isinstance(one, JobReport) and one.hosts == hosts for one in watched.said)

    with job.supervising():
        watched.executor.carry_out([ResizeOrder(1, 1, 1, "0000abcd", 1, ("ada", "bob"))])
        assert at_it.wait(60)
        until(lambda: told(()), 60)
        watched.said.clear()
        go_on.set()
        until(lambda: told(("ada",)), 60)


def test_a_record_that_is_none_keeps_no_other_job_unheard(watched):
    job = store.create({}, "", identifier="0000cdef")
    with job.supervising():
        (job.folder / "job.json").write_text("{}")
        watched.executor.carry_out([AskOrder(2, 1, 1, "0000cdef", True)])
        until(lambda: not watched.executor.orders_in_progress())
        watched.executor.carry_out([END])
        until(watched.ended)


def test_the_verification_of_a_running_job_is_reported(watched):
    job = running("0000abcd")
    with job.supervising():
        watched.executor.carry_out([AskOrder(1, 1, 1, "0000abcd", True)])
        until(lambda: watched.hears_of_verification() == [None], 60)
        job.write({**job.record(), "state": "verifying", "verifying_until": 80.0})
        until(lambda: watched.hears_of_verification() == [None, 80.0], 60)


def running(identifier):
    """Return the record of a new attempt, which says that it runs."""
    job = store.create({}, "", identifier=identifier)
    job.write({**job.record(), "state": "running", "hosts": ["ada"]})
    return job


def test_changes_of_a_record_and_the_end_of_its_supervisor_are_reported(watched):
    def said(iteration):
        watched.said += watched.executor.reports()
        return any(getattr(one, "iteration", None) == iteration for one in watched.said)

    job = running("0000abcd")
    with job.supervising():
        order = AskOrder(1, 1, 1, "0000abcd", True, (("ada", LAST), ("bob", LAST)))
        watched.executor.carry_out([order])
        for iteration in range(1, 4):
            until(lambda: said(iteration - 1), 30)  # noqa: B023 - asked at once
            job.write({**job.record(), "iteration": iteration})
        until(lambda: said(3), 30)
    until(watched.ended, 30)
    assert watched.said[-3].reason == store.LOST


def test_a_record_that_nobody_wrote_is_not_read_again_while_its_supervisor_lives(
    watching, monkeypatch
):
    watched, read = watching(), []
    job = running("0000abcd")
    record, supervised = store.StoredJob.record, store.StoredJob.supervised
    looks = []
    monkeypatch.setattr(
        store.StoredJob, "supervised", lambda it: looks.append(it) or supervised(it)
    )
    monkeypatch.setattr(store.StoredJob, "record", lambda it: read.append(it) or record(it))
    with job.supervising():
        watched.executor.carry_out([AskOrder(1, 1, 1, "0000abcd", True)])
        until(lambda: len(looks) > 5, 30)
        assert len(read) == 1


def test_job_with_a_requirement_does_not_begin_where_no_daemon_could_meet_it(watching):
    begun = []
    watched = watching(begin=begun.append)
    work = {"template": "none.toml", "require": "MAX_RADIUS=1"}
    watched.executor.carry_out([replace(START, work=work)])
    until(lambda: not watched.executor.orders_in_progress())
    record = store.job("0000abcd").record()
    assert (begun, record["state"], record["exit_code"]) == ([], "failed", 2)
    assert record["reason"].startswith("--require: ada, bob: no topology daemon; ")


SHARING = StartOrder(1, 1, 1, "0000abcd", ("ada", "bob"), {"template": "none.toml"}, cpus=4)


class Daemons:
    """Topology daemons that can be down, refuse or hang, and what they have given."""

    def __init__(self):
        self.sockets = {"ada": "/ada", "bob": "/bob"}
        self.cpus = 4
        self.down, self.given, self.hanging = set(), set(), {}
        self.asked, self.checked = [], []
        self.refusal = ""

    def is_far(self, _host):
        return False

    def close(self):
        pass

    def check(self, host):
        self.checked.append(host)
        self._ask(host)

    def _ask(self, host):
        place = self.sockets[host]
        if host in self.down:
            raise SilentDaemonError(f"no topology daemon at {place}", host=host)

    def allocate(self, job, hosts, _requirement=""):
        for host in hosts:
            self._ask(host)
            if self.refusal:
                raise InfeasibleError(self.refusal)
            self.given.add((job, host))

    def look(self, host, jobs):
        self._ask(host.name)
        self.asked += [(job, host.name) for job in jobs]
        for job in jobs:
            assert host.name not in self.hanging or self.hanging[host.name].wait(60)
            self.given.discard((job, host.name))
        return dict.fromkeys(jobs, 0)


class Sharing(Watched):
    """An executor of jobs that share hosts, and its daemons."""

    def __init__(self, tmp_path):
        self.daemons, self.begun = Daemons(), []
        daemons, verbs = self.daemons, JobVerbs(begin=self.begun.append)
        looks = partial(HostLooks.by_daemons, [Host("ada"), Host("bob")], daemons, time.monotonic)
        self.executor = JobServiceExecutor(
            "lab",
            tmp_path / "h.toml",
            time.monotonic,
            lambda: None,
            looks=looks,
            daemons=daemons,
            verbs=verbs,
        )
        self.said = []

    def carry_out(self, order):
        self.executor.carry_out([order])
        until(lambda: not self.executor.orders_in_progress())

    def left(self, number, *hosts):
        self.said += self.executor.reports()
        found = {it.host for it in self.said if isinstance(it, HostLeft) and it.job == number}
        return found == set(hosts)

    def told(self, report):
        self.said += self.executor.reports()
        return report in self.said


@pytest.fixture
def sharing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Sharing(tmp_path)
    yield found
    for each in found.daemons.hanging.values():
        each.set()
    found.executor.close()


SILENT = HostAnswer("bob", "no topology daemon at /bob")


def test_an_attempt_whose_daemon_is_down_has_not_begun_and_begins_when_it_answers(sharing):
    sharing.daemons.down.add("bob")
    for _ in range(2):
        sharing.carry_out(SHARING)
        sharing.carry_out(AskOrder(1, 1, 1, "0000abcd", False))
    until(lambda: sharing.told(SILENT))
    phases = {one.phase for one in sharing.said if isinstance(one, JobReport)}
    assert (sharing.begun, phases) == ([], {AttemptPhase.ABSENT})
    sharing.daemons.down.clear()
    until(lambda: sharing.told(HostAnswer("bob")))
    sharing.carry_out(SHARING)
    assert [job.id for job in sharing.begun] == ["0000abcd"]
    assert sharing.daemons.given == {("0000abcd", "ada"), ("0000abcd", "bob")}


@pytest.mark.more
def test_one_that_is_ended_before_its_daemon_answers_never_begins_and_gives_all_back(sharing):
    sharing.daemons.down.add("bob")
    sharing.carry_out(SHARING)
    sharing.carry_out(END)
    until(lambda: sharing.left(1, "ada"))
    assert store.job("0000abcd").record()["state"] == "cancelled"
    assert sharing.daemons.given == set()
    sharing.daemons.down.clear()
    until(lambda: sharing.left(1, "ada", "bob"))
    sharing.carry_out(SHARING)
    assert sharing.begun == []


def test_a_refusal_of_a_daemon_is_a_failure_of_the_job_and_its_silence_is_said_before_one(sharing):
    sharing.daemons.refusal = "4 CPUs are not free"
    sharing.carry_out(SHARING)
    until(lambda: sharing.left(1, "ada", "bob"))
    (ended,) = [one for one in sharing.said if isinstance(one, JobReport)]
    assert (ended.state, ended.exit_code, ended.reason) == ("failed", 3, "4 CPUs are not free")
    job = store.create({"scheduled": {"topologyd": {}}}, "", identifier="0000cdef")
    job.write_last({**job.record(), "state": "failed", "reason": "bob: no ranks", "exit_code": 4})
    sharing.daemons.down.add("bob")
    sharing.said.clear()
    sharing.carry_out(EndOrder(2, 1, 1, "0000cdef", ("ada", "bob")))
    until(lambda: sharing.left(2, "ada"))
    kinds = [type(one) for one in sharing.said if one == SILENT or isinstance(one, JobReport)]
    assert kinds == [HostAnswer, JobReport]


def test_all_daemons_of_an_attempt_that_its_hosts_failed_are_asked_before_it_is_over(sharing):
    job = store.create({"scheduled": {"topologyd": {}}}, "", identifier="0000cdef")
    job.write_last({**job.record(), "state": "failed", "reason": "no ranks", "exit_code": 4})
    sharing.daemons.down |= {"ada", "bob"}
    sharing.carry_out(EndOrder(2, 1, 1, "0000cdef", ("ada", "bob")))
    until(lambda: sharing.told(SILENT), 60)
    assert sharing.daemons.checked == ["ada", "bob"]


def test_an_attempt_on_a_host_that_is_not_listed_any_more_is_said_to_be_over(sharing):
    job = store.create({"scheduled": {"topologyd": {}}}, "", identifier="0000cdef")
    job.write_last({**job.record(), "state": "failed", "reason": "no ranks", "exit_code": 4})
    sharing.carry_out(EndOrder(2, 1, 1, "0000cdef", ("ada", "gone")))
    until(lambda: sharing.left(2, "ada"), 60)
    (ended,) = [one for one in sharing.said if isinstance(one, JobReport)]
    assert (ended.state, ended.exit_code) == ("failed", 4)
    assert sharing.daemons.checked == ["ada"]


def test_the_daemons_of_an_attempt_that_was_cancelled_are_not_asked_whose_fault_it_was(sharing):
    sharing.carry_out(END)
    until(lambda: sharing.left(1, "ada", "bob"))
    assert store.job("0000abcd").record()["state"] == "cancelled"
    assert sharing.daemons.checked == []


def test_a_job_that_asked_no_daemon_leaves_its_hosts_whatever_their_daemons_say(sharing):
    sharing.daemons.down |= {"ada", "bob"}
    sharing.carry_out(START)
    sharing.carry_out(END)
    until(lambda: sharing.left(1, "ada", "bob"))


def test_a_daemon_that_hangs_holds_up_no_other_host_and_is_waited_for_once(sharing):
    sharing.daemons.hanging["bob"] = threading.Event()
    for _ in range(3):
        sharing.carry_out(END)
    sharing.carry_out(EndOrder(2, 1, 1, "0000cdef", ("ada",)))
    until(lambda: sharing.left(2, "ada") and sharing.left(1, "ada"))
    assert sharing.daemons.asked.count(("0000abcd", "bob")) == 1
    sharing.daemons.hanging["bob"].set()
    until(lambda: sharing.left(1, "ada", "bob"))

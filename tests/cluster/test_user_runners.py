"""A shared scheduler: whose jobs wait for a job runner, what a job runner is told, and what it is believed."""

import json

import pytest
from coding import in_order, with_code
from hypothesis import given
from hypothesis import strategies as st

from apples.cluster import (
    LAST,
    MAX_ORDERS,
    ORDERS,
    REPORTS,
    SILENT_SECONDS,
    USERS,
    AskOrder,
    AttemptPhase,
    CrowdedError,
    EndOrder,
    EstimateOrder,
    ForbiddenError,
    HostLeft,
    JobReport,
    JobRunner,
    JobRunnerAnswer,
    JobRunnerExecutor,
    JobSubmission,
    LiveJobState,
    LiveScheduler,
    Principal,
    QueueLimits,
    ResizeOrder,
    RunTimeEstimate,
    SchedulerLog,
    SchedulerService,
    StartOrder,
    bare,
    job_document,
    message_document,
    message_of,
    sealed,
    unsealed,
)
from apples.errors import UsageError
from apples.scheduling import FirstFit

ADA, BOB = "uid:1001", "uid:1002"
NUMBERS = st.integers(0, 1 << 40)
NAMES = st.text("abc.-_019", min_size=1, max_size=8)
HOSTS = st.lists(NAMES, max_size=3).map(tuple)
WORK = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5))
SHARES = st.dictionaries(NAMES, st.floats(0, 1), max_size=3)
WHERE = (NUMBERS, NUMBERS, NUMBERS, NAMES)
MESSAGES = st.one_of(
    st.builds(StartOrder, *WHERE, HOSTS, WORK, NAMES),
    st.builds(ResizeOrder, *WHERE, NUMBERS, HOSTS, NAMES),
    st.builds(EndOrder, *WHERE, HOSTS, NAMES),
    st.builds(
        AskOrder, *WHERE, st.booleans(), st.lists(st.tuples(NAMES, NUMBERS), max_size=3).map(tuple)
    ),
    st.builds(JobReport, NUMBERS, NUMBERS, st.sampled_from(AttemptPhase), hosts=HOSTS),
    st.builds(HostLeft, NUMBERS, NUMBERS, NAMES, NUMBERS),
    st.builds(EstimateOrder, NUMBERS, NUMBERS, NUMBERS, WORK, NAMES),
    st.builds(EstimateOrder, NUMBERS, NUMBERS, NUMBERS, WORK, NAMES, among=HOSTS, shares=SHARES),
    st.builds(
        RunTimeEstimate,
        NUMBERS,
        st.none() | st.floats(1e-9, 1e9),
        st.none()
        | st.lists(st.tuples(HOSTS.filter(bool), st.floats(0, 1e9)), max_size=3).map(tuple),
    ),
)


class Clock:
    """A clock that is set."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Shared:
    """A shared scheduler on two hosts, whose orders are looked at."""

    def __init__(self, folder, limits=QueueLimits()):  # noqa: B008 - frozen
        self.clock = Clock()
        self.machine = LiveScheduler(
            SchedulerLog.open(folder),
            FirstFit(),
            ["a", "b"],
            0.0,
            1e9,
            self.token,
            shared=True,
            name="lab",
            limits=limits,
        )
        self.executor = JobRunnerExecutor(self.clock)
        self.service = SchedulerService(self.machine, self.clock, None, self.executor)
        self.folders = 0

    def token(self):
        self.folders += 1
        return f"0000000{self.folders}"

    def submit(self, user, hosts=1):
        return self.machine.submit(self.clock.now, JobSubmission(hosts, hosts, user=user))

    def turn(self):
        """Let the scheduler take in who has come and gone, decide, and give orders."""
        for _ in range(2):
            self.clock.now += 1.0
            for report in self.executor.reports():
                self.machine.report(self.clock.now, report)
            self.machine.tick(self.clock.now)
            self.executor.carry_out(self.machine.turn())

    def come(self, user, life="1"):
        """Have a user's job runner ask for orders; return them."""
        found = self.executor.take(user, life, 0.0)
        self.turn()
        return found + self.executor.take(user, life, 0.0)

    def says(self, user, *reports):
        body = {"reports": [message_document(one) for one in reports]}
        self.service.job_runner_reports(json.loads(json.dumps(body)), Principal(user, USERS))(
            self.clock.now
        )
        self.turn()

    def state(self, number):
        return self.machine.job(number).state


@pytest.fixture
def shared(tmp_path):
    return Shared(tmp_path)


@given(MESSAGES)
def test_an_order_and_a_report_come_over_the_wire_as_they_were(message):
    sent = json.loads(json.dumps(message_document(message)))
    assert message_of(sent, {**ORDERS, **REPORTS}) == message


@pytest.mark.parametrize(
    "found",
    [
        None, [], {}, {"kind": []}, {"kind": "start"}, {"kind": "ask"}, {"kind": "left", "job": "x"},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "odd"}, {"kind": "run_time", "job": 1, "seconds": 0.0},
        {"kind": "run_time", "job": 1, "seconds": float("inf")},
        {"kind": "left", "job": 1, "attempt": 1, "host": "\ud800", "epoch": 1},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "running", "asks": [2, 1]},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "running", "speeds": {"ada": float("nan")}},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "running", "speeds": {"ada": 0.0}},
        {"kind": "selected", "job": 1, "question": 1, "hosts": ["ada"], "seconds": float("nan")},
        {"kind": "selected", "job": 1, "question": 1, "hosts": ["ada"], "otherwise": -1.0},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "running", "messages": [["ada", "bob", -1.0]]},
        {"kind": "job", "job": 1, "attempt": 1, "phase": "running", "messages": [["ada", 2.0]]},
    ],
)  # fmt: skip
def test_what_is_no_report_is_refused(found):
    with pytest.raises(UsageError):
        message_of(found, REPORTS)


def test_a_job_waits_for_its_users_job_runner_and_holds_nobody_up(shared):
    first, second = shared.submit(ADA, 2), shared.submit(BOB, 2)
    shared.turn()
    assert [shared.state(one) for one in (first, second)] == [LiveJobState.QUEUED] * 2
    why = shared.service.why(f"lab.{first}")(0.0)
    assert in_order(why["reason"], ADA, "apples scheduler --run-my-jobs")
    assert (why["state"], why["position"]) == ("held", None)
    (order,) = shared.come(BOB)
    assert (order.job, order.user, type(order)) == (second, BOB, StartOrder)
    assert shared.come(ADA) == []
    assert shared.state(first) is LiveJobState.QUEUED


def test_a_job_runner_gets_no_order_to_anothers_job_and_is_not_believed_about_it(shared):
    job = shared.submit(ADA)
    (order,) = shared.come(ADA)
    assert shared.come(BOB) == []
    ended = JobReport(job, 1, AttemptPhase.ENDED, state="finished", exit_code=0)
    shared.says(BOB, ended, HostLeft(job, 1, order.hosts[0], LAST))
    assert shared.state(job) is LiveJobState.STARTING
    shared.says(ADA, ended)
    assert shared.state(job) is LiveJobState.ENDING
    shared.says(BOB, HostLeft(job, 1, order.hosts[0], LAST))
    assert shared.state(job) is LiveJobState.ENDING
    shared.says(ADA, HostLeft(job, 1, order.hosts[0], LAST))
    assert shared.state(job) is LiveJobState.FINISHED


def test_one_who_is_silent_is_away_and_its_waiting_jobs_wait_for_it_again(shared):
    running = shared.submit(ADA, 2)
    shared.come(ADA)
    shared.says(ADA, JobReport(running, 1, AttemptPhase.RUNNING))
    waiting = shared.submit(ADA, 2)
    assert not shared.machine.is_ineligible(shared.machine.job(waiting))
    shared.clock.now += SILENT_SECONDS
    shared.turn()
    assert shared.machine.is_ineligible(shared.machine.job(waiting))
    assert shared.state(running) is LiveJobState.RUNNING
    shared.machine.cancel(shared.clock.now, waiting)
    assert shared.state(waiting) is LiveJobState.CANCELLED


def test_cancelled_job_ends_without_its_job_runner_when_the_operator_says_so(shared):
    job = shared.submit(ADA)
    (start,) = shared.come(ADA)
    shared.says(ADA, JobReport(job, 1, AttemptPhase.RUNNING))
    shared.clock.now += SILENT_SECONDS
    shared.turn()
    machine = shared.machine
    for _ in range(2):
        machine.cancel(shared.clock.now, job)
        assert shared.state(job) is LiveJobState.ENDING
        shared.turn()
    reason = job_document(machine, "lab", machine.job(job))["reason"]
    assert in_order(reason, "job runner", ADA, "cancel lab.1 again")
    machine.cancel(shared.clock.now, job, operator=True)
    assert shared.state(job) is LiveJobState.CANCELLED
    assert in_order(machine.job(job).reason, ADA, "away")
    shared.turn()
    (host,) = start.hosts
    assert [*machine.state.quarantined] == [host]
    shared.come(ADA, "2")
    shared.clock.now += 10.0
    shared.turn()
    assert AskOrder in map(type, shared.executor.take(ADA, "2", 0.0))
    shared.says(ADA, JobReport(job, 1, AttemptPhase.RUNNING, hosts=start.hosts))
    ends = [one for one in shared.executor.take(ADA, "2", 0.0) if isinstance(one, EndOrder)]
    assert [(one.folder, one.hosts) for one in ends] == [(start.folder, start.hosts)]
    shared.says(ADA, HostLeft(job, 1, host, LAST))
    assert not machine.state.quarantined


def test_cancelled_job_ends_when_its_job_runner_is_back(shared):
    job = shared.submit(ADA)
    (start,) = shared.come(ADA)
    shared.says(ADA, JobReport(job, 1, AttemptPhase.RUNNING))
    shared.clock.now += SILENT_SECONDS
    shared.turn()
    shared.machine.cancel(shared.clock.now, job)
    shared.turn()
    assert EndOrder in map(type, shared.come(ADA, "2"))
    ended = JobReport(job, 1, AttemptPhase.ENDED, state="cancelled")
    shared.says(ADA, ended, HostLeft(job, 1, start.hosts[0], LAST))
    assert shared.state(job) is LiveJobState.CANCELLED


def test_a_job_runner_that_was_restarted_is_asked_where_its_jobs_are(shared):
    job = shared.submit(ADA)
    shared.come(ADA)
    shared.says(ADA, JobReport(job, 1, AttemptPhase.RUNNING))
    (order,) = shared.come(ADA, "2")
    assert (type(order), order.job, order.begun) == (AskOrder, job, True)


def test_a_start_that_no_job_runner_took_is_ordered_once_more_under_the_same_name(shared):
    job = shared.submit(ADA)
    (first,) = shared.come(ADA)
    shared.clock.now += 1000.0  # away for longer than any start may take
    shared.turn()
    assert shared.state(job) is LiveJobState.STARTING
    (asked,) = [one for one in shared.come(ADA, "2") if isinstance(one, AskOrder)]
    assert not asked.begun
    shared.says(ADA, JobReport(job, 1, AttemptPhase.ABSENT))
    again = shared.executor.take(ADA, "2", 0.0)
    assert [one for one in again if isinstance(one, StartOrder)] == [first]


def test_a_job_of_one_who_is_away_that_its_hosts_failed_waits_for_it(shared):
    job = shared.submit(ADA)
    (order,) = shared.come(ADA)
    shared.machine.report(shared.clock.now, JobRunnerAnswer(ADA, False))
    failed = JobReport(job, 1, AttemptPhase.ENDED, state="failed", exit_code=4)
    shared.says(ADA, failed, HostLeft(job, 1, order.hosts[0], LAST))
    assert shared.state(job) is LiveJobState.QUEUED
    assert shared.machine.ledger.queue == [] or job not in [
        one.id for one in shared.machine.ledger.queue
    ]


def test_orders_for_one_user_are_bounded_and_the_last_to_a_job_stands_for_all(shared):
    shared.come(ADA)
    for round_ in range(3):
        shared.executor.carry_out([
            AskOrder(number, 1, round_, "f", True, user=ADA) for number in range(MAX_ORDERS + 5)
        ])  # fmt: skip
    taken = [one for _ in range(60) for one in shared.executor.take(ADA, "1", 0.0)]
    assert len(taken) == MAX_ORDERS


def test_one_user_cannot_fill_the_queue_and_the_operator_has_places_of_its_own(tmp_path):
    shared = Shared(tmp_path, QueueLimits(waiting=6, waiting_of_one=3, reserved=1))

    def submit(user, operator=False):
        return shared.machine.submit(0.0, JobSubmission(1, 1, user=user), "", operator)

    first, *_ = [submit(ADA) for _ in range(3)]
    with pytest.raises(CrowdedError, check=with_code("queue-full", bound=3, user=ADA)):
        submit(ADA)
    shared.machine.cancel(0.0, first)
    submit(ADA)
    for _ in range(2):
        submit(BOB)
    with pytest.raises(CrowdedError, check=with_code("queue-full", bound=5, user=None)):
        submit(BOB)
    submit("uid:0", operator=True)
    with pytest.raises(CrowdedError, check=with_code("queue-full", bound=6, user=None)):
        submit("uid:0", operator=True)
    assert (
        dict(shared.machine.log.read().waiting_of) == {}
    )  # nothing is on the disk before its turn
    shared.turn()
    assert shared.machine.log.read().waiting_of == shared.machine.state.waiting_of


class Recorded:
    """An executor that keeps what it is told."""

    def __init__(self):
        self.orders = []

    def carry_out(self, orders):
        self.orders += orders


def test_a_job_runner_starts_what_its_user_submitted_and_obeys_no_scheduler_of_before(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    recorded, said = Recorded(), []
    one = JobRunner(None, lambda _: recorded, said.append)
    work = {"template": "t.toml", "settings": {"grid": "4"}}
    order = StartOrder(1, 1, 2, "00000001", ("a", "b"), sealed(work), ADA)
    changed = StartOrder(2, 1, 2, "00000002", ("a",), {**sealed(work), "template": "u.toml"}, ADA)
    one.obey([
        order, changed, StartOrder(3, 1, 2, "00000003", ("a",), work, ADA),
        EndOrder(4, 1, 1, "00000004", ("a",), ADA), EstimateOrder(5, 2, 1, work, ADA),
        EstimateOrder(6, 2, 1, sealed(work), ADA),
    ])  # fmt: skip
    assert [(found.job, found.work) for found in recorded.orders] == [
        (1, work),
        (6, work),
    ]
    reports = list(one.kept)
    assert [type(found) for found in reports] == [JobReport, HostLeft] * 2
    assert {found.exit_code for found in reports[::2]} == {2}


def test_a_seal_is_of_one_user_and_of_all_that_is_to_be_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ada"))
    work = {"template": "t.toml", "settings": {"grid": "4"}, "seconds": 1.5}
    mark = json.loads(json.dumps(sealed(work)))
    assert (unsealed(mark), bare(mark)) == (work, work)
    assert unsealed({**mark, "seconds": 1.25}) is None
    assert unsealed(work) is None
    assert (tmp_path / "ada/apples/submission-key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "bob"))
    assert unsealed(mark) is None


def test_any_user_may_look_submit_and_change_own_jobs_and_none_may_drain():
    ada = Principal(ADA, USERS)
    ada.check_owner("lab.1", ADA)
    with pytest.raises(
        ForbiddenError, check=with_code("permission-denied", job="lab.2", principal=ADA, owner=BOB)
    ):
        ada.check_owner("lab.2", BOB)
    with pytest.raises(
        ForbiddenError, check=with_code("permission-denied", principal=ADA, scope="operator")
    ):
        ada.check("operator")

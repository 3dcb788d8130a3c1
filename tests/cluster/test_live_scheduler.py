"""The live scheduler: its life of a job, its log, and that it decides as the simulator does.

`tests/soak_live.py` runs its simulation by the thousand; here is a sample, and that it finds planted faults.
"""

import contextlib
import errno
import itertools
import json
import os
import re
import sqlite3
import sys
import threading
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from time import monotonic, thread_time

import numpy as np
import pytest
from adversaries.faulty_folder import FaultyFolder, FolderFaults
from adversaries.live_scheduler import SHARING
from coding import in_order, with_code
from hypothesis import given
from hypothesis import strategies as st
from planted_live import FAULTS, FAULTS_OF_SHARING, RARE, plant
from soak_live import first_broken
from waiting import until

from apples.cluster import (
    EVERYTHING,
    LAST,
    MAX_QUEUED,
    AskOrder,
    AttemptPhase,
    EndOrder,
    EstimateOrder,
    HostAnswer,
    HostClaims,
    HostLease,
    HostLeft,
    HostLoad,
    HostPreference,
    JobExecutor,
    JobHistory,
    JobPace,
    JobReport,
    JobSubmission,
    LiveJobState,
    LiveScheduler,
    PlannerClient,
    Principal,
    QueueLimits,
    QueuePlanner,
    QueueSnapshot,
    ResizeOrder,
    RunTimeEstimate,
    SchedulerLog,
    SchedulerService,
    StartOrder,
    Timeouts,
    checked,
    folded,
    history_document,
    job_document,
    planner_command,
    queue_document,
    queue_text,
    snapshot_of,
    submission_document,
    submission_of,
    swf_lines,
    watched_text,
    why_document,
    why_text,
)
from apples.errors import LaunchError, UsageError
from apples.io import Folder, parse
from apples.jobs import found
from apples.resources import Host, HostList, Link, Network
from apples.scheduling import (
    ClusterState,
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    GuardedPolicy,
    Hold,
    Job,
    JobKind,
    Migrate,
    NodeLoad,
    PaybackMigration,
    PolicyFailure,
    Refused,
    Reject,
    Requeue,
    Reserve,
    Resize,
    RunningJob,
    SchedulingPolicy,
    ShortestJobFirst,
    SlurmBackfill,
    Start,
)
from apples.simulation import EventEngine, SimulationConfig, mark_malleable, rigid

AT_ONCE = Timeouts(batch_window=0.0, min_pass_interval=0.0)
HOSTS = ("ada", "bob", "cleo", "dan")


class Stage:
    """A scheduler whose clock, jobs and hosts are the test's."""

    def __init__(
        self,
        directory,
        policy=None,
        hosts=HOSTS,
        faults=None,
        timeouts=AT_ONCE,
        lost=None,
        prefer=None,
        nodes=None,
        most_hosts=None,
        cpus=0,
        limits=QueueLimits(),  # noqa: B008 - frozen
    ):
        self.nodes, self.most_hosts, self.cpus = nodes or {}, most_hosts, cpus
        self.directory, self.hosts, self.timeouts, self.lost = directory, hosts, timeouts, lost
        self.prefer = prefer
        self.policy, self.limits = policy or FirstFit(), limits
        self.faults = faults or FolderFaults()
        self.now = 0.0
        self.tokens = 0
        self.begin()

    def begin(self, wall=1e9):
        folder = FaultyFolder(Folder.open(self.directory, links=True), self.faults)
        self.one = LiveScheduler(
            SchedulerLog(folder),
            self.policy,
            self.hosts,
            self.now,
            wall,
            self.token,
            self.timeouts,
            self.lost,
            self.prefer,
            self.nodes,
            most_hosts=self.most_hosts,
            cpus=self.cpus,
            limits=self.limits,
        )

    def token(self):
        self.tokens += 1
        return f"{self.tokens:08x}"

    def again(self, wall=1e9):
        """Lose the scheduler and start another on its directory."""
        self.one.log.close()
        self.begin(wall)

    def turn(self, seconds=0.0):
        """Let time pass; return the orders."""
        self.now += seconds
        self.one.tick(self.now)
        return self.one.turn()

    def submit(self, least=1, most=1, kind=JobKind.RIGID, request=""):
        number = self.one.submit(self.now, JobSubmission(least, most, kind, 100.0), request)
        return number, self.turn()

    def say(self, order, phase=AttemptPhase.RUNNING, **more):
        """Report of the attempt of an order; return the orders that follow."""
        self.one.report(self.now, JobReport(order.job, order.attempt, phase, **more))
        return self.turn()

    def left(self, order, *hosts, epoch=LAST):
        for host in hosts:
            self.one.report(self.now, HostLeft(order.job, order.attempt, host, epoch))
        return self.turn()

    def state(self, number):
        return self.one.state.jobs[number].state


@pytest.fixture
def stage(tmp_path):
    stages = []

    def made(*arguments, **options):
        stages.append(Stage(tmp_path, *arguments, **options))
        return stages[-1]

    yield made
    for one in stages:
        one.one.log.close()


def test_a_pass_comes_soon_after_an_event_and_gathers_what_comes_soon_after_another(stage):
    s = stage(timeouts=Timeouts(batch_window=0.01, min_pass_interval=0.05))
    passes = []
    for _ in range(200):
        s.now = s.now + 0.001
        s.one.submit(s.now, JobSubmission(1, 1))
        before = s.one.passes
        s.turn()
        passes += [round(1000 * s.now)] * (s.one.passes - before)
    assert passes == [10, 60, 110, 160]  # from the start on, which is an event too
    s.turn(0.05)
    s.turn(10.0)
    s.one.submit(s.now, JobSubmission(1, 1))
    assert s.one.next_time() == pytest.approx(0.01)


def test_a_job_is_planned_by_what_its_model_says_where_its_user_has_not_said_how_long_it_runs(
    stage,
):
    s = stage(ShortestJobFirst())
    _, (start,) = s.submit(4, 4)
    s.submit(1, 1)
    work = {"template": "t"}
    number = s.one.submit(
        s.now, JobSubmission(2, 4, JobKind.MOLDABLE, 3600.0, work=work, modelled=True)
    )
    (order,) = s.turn()
    assert order == EstimateOrder(number, s.one.state.incarnation, 4, work)
    assert [one.id for one in s.one.ledger.queue] == [2, number]
    assert order not in s.turn(s.timeouts.estimate_interval / 2)
    assert order in s.turn(s.timeouts.estimate_interval)  # nobody has answered
    assert job_document(s.one, "x", s.one.job(number))["estimated_by"] == "nobody"
    s.one.report(s.now, RunTimeEstimate(number, 50.0))
    s.one.report(s.now, RunTimeEstimate(number, 9.0))  # of an order that was repeated
    s.turn()
    s.again()
    assert all(not isinstance(one, EstimateOrder) for one in s.turn(s.timeouts.estimate_interval))
    assert s.one.ledger.queue[1].requested == 50.0
    shown = why_document(s.one, "x", s.one.job(number))
    assert (shown["requested"], shown["estimated_by"]) == (50.0, "model")
    assert "50.0 s" in queue_text(queue_document(s.one, "x"))
    s.say(start, AttemptPhase.ENDED, state="finished")
    (first,) = s.left(start, *start.hosts)
    assert (first.job, len(first.hosts)) == (number, 4)


def test_a_job_that_runs_already_is_expected_to_end_by_its_models_estimate(stage):
    s = stage()
    number = s.one.submit(s.now, JobSubmission(1, 1, requested=3600.0, modelled=True))
    _, start = s.turn()
    s.say(start, hosts=start.hosts)
    s.now += 10.0
    s.one.report(s.now, RunTimeEstimate(number, 40.0))
    assert s.one.ledger.running[number].limit == pytest.approx(s.one.job(number).started + 40.0)
    unknown = s.one.submit(s.now, JobSubmission(1, 1, requested=3600.0, modelled=True))
    s.one.report(s.now, RunTimeEstimate(unknown, None))
    assert s.one.job(unknown).requested == 3600.0
    assert not s.one.job(unknown).unestimated


def with_terms(stage, **seconds):
    """Say until when hosts may be used; return the orders that follow."""
    for host, each in seconds.items():
        stage.one.report(stage.now, HostLease(host, each, "allocation 7"))
    return stage.turn(stage.timeouts.check_interval)


def test_a_job_that_can_be_moved_leaves_hosts_whose_allocation_ends_and_they_leave_the_list(stage):
    s = stage(prefer=HostPreference({}))
    _, (start,) = s.submit(1, 2, JobKind.MALLEABLE)
    s.say(start, hosts=start.hosts)
    assert start.hosts == ("ada", "bob")
    assert with_terms(s, ada=3600.0, bob=3600.0) == []
    (resize,) = [one for one in with_terms(s, ada=50.0, bob=50.0) if isinstance(one, ResizeOrder)]
    assert resize.hosts == ("cleo", "dan")
    shown = queue_document(s.one, "x")
    assert [host["state"] for host in shown["hosts"][:2]] == ["draining", "draining"]
    assert in_order(shown["hosts"][0]["reason"], "allocation 7", "50 s")
    s.say(start, hosts=resize.hosts, epoch=resize.epoch)
    assert in_order(s.one.state.jobs[start.job].reason, "allocation 7", "50 s")
    s.left(start, "ada", epoch=resize.epoch)
    s.turn(60.0)
    assert s.one.state.hosts == HOSTS  # whoever gave them has not taken them back
    with_terms(s, ada=0.0, bob=0.0)  # bob has not said that the job has left it
    assert s.one.state.hosts == ("bob", "cleo", "dan")
    s.left(start, "bob", epoch=resize.epoch)
    s.turn(s.timeouts.check_interval)
    assert s.one.state.hosts == ("cleo", "dan")
    _, orders = s.submit(1, 1)
    assert orders == []  # both are held, and there are no others
    s.again()
    assert "ada" not in s.one.state.holders


def test_with_too_few_hosts_elsewhere_a_job_shrinks_and_one_that_cannot_says_so_once(stage):
    s = stage(hosts=("ada", "bob"), prefer=HostPreference({}))
    _, (start,) = s.submit(1, 2, JobKind.MALLEABLE)
    s.say(start, hosts=start.hosts)
    (resize,) = [one for one in with_terms(s, ada=9.0) if isinstance(one, ResizeOrder)]
    assert resize.hosts == ("bob",)
    s.say(start, hosts=("bob",), epoch=resize.epoch)
    s.left(start, "ada", epoch=resize.epoch)
    with_terms(s, bob=9.0)
    s.turn(1.0)
    said = [text for _, text in s.one.alarms]
    assert len([text for text in said if in_order(text, "local.1", "bob", "allocation 7")]) == 1


@pytest.mark.parametrize("kind", [JobKind.RIGID, JobKind.MALLEABLE])
def test_job_ends_on_hosts_whose_allocation_was_taken_back(stage, kind):
    s = stage(hosts=("ada", "bob"), prefer=HostPreference({}), most_hosts=4)
    number, (start,) = s.submit(2, 2, kind)
    s.say(start, hosts=start.hosts)
    with_terms(s, ada=3600.0, bob=3600.0)
    with_terms(s, bob=0.0)
    assert s.state(number) is LiveJobState.RUNNING  # another allocation may get the host
    (end,) = [one for one in s.turn(10.0) if isinstance(one, EndOrder)]
    assert (type(end), end.job, end.hosts) == (EndOrder, number, ("ada", "bob"))
    s.say(end, AttemptPhase.ENDED, state="cancelled")
    s.left(end, "ada", "bob")
    s.turn(s.timeouts.check_interval)
    assert s.state(number) is LiveJobState.QUEUED
    assert s.one.state.hosts == ("ada",)


def test_a_job_that_cannot_be_moved_starts_only_where_hosts_stay_until_its_end(stage):
    s = stage(prefer=HostPreference({}))
    with_terms(s, ada=90.0, bob=90.0, cleo=90.0, dan=3600.0)
    _, (start,) = s.submit(1, 1)  # 100 s
    assert start.hosts == ("dan",)
    s.say(start, hosts=start.hosts)
    two, orders = s.submit(2, 2)
    assert orders == []
    why = why_document(s.one, "x", s.one.job(two))
    assert in_order(why["reason"], "1", "2", "100 s")
    three, orders = s.submit(1, 1)  # there is one that stays: it is held
    assert orders == []
    held = why_document(s.one, "x", s.one.job(three))
    assert held["state"] == "held"
    assert held["reason"] != why["reason"]
    passes = s.one.passes
    for _ in range(5):
        s.turn(1.0)
    assert s.one.passes <= passes + 1
    _, (move,) = s.submit(1, 1, JobKind.MALLEABLE)  # 100 s as well, and it can be moved
    assert move.hosts != ("dan",)
    s.say(start, AttemptPhase.ENDED, state="finished")
    (begun,) = [each for each in s.left(start, "dan") if isinstance(each, StartOrder)]
    assert (begun.job, begun.hosts) == (three, ("dan",))
    with_terms(s, eve=7200.0)
    s.one.report(s.now, HostAnswer("eve"))
    s.one.report(s.now, HostLease("dan", inf, "allocation 7"))
    s.say(begun, AttemptPhase.ENDED, state="finished")
    (last,) = [each for each in s.left(begun, "dan") if isinstance(each, StartOrder)]
    assert (last.job, last.hosts) == (two, ("dan", "eve"))


def test_a_job_that_hosts_do_not_stay_for_starts_when_its_model_says_that_it_is_shorter(stage):
    s = stage()
    with_terms(s, ada=900.0, bob=900.0, cleo=900.0, dan=900.0)
    number = s.one.submit(s.now, JobSubmission(1, 1, requested=3600.0, modelled=True))
    (order,) = s.turn()
    assert isinstance(order, EstimateOrder)
    s.one.report(s.now, RunTimeEstimate(number, 50.0))
    (start,) = s.turn()
    assert (start.job, start.hosts) == (number, ("ada",))
    longer = s.one.submit(s.now, JobSubmission(1, 1, requested=3600.0, modelled=True))
    s.one.report(s.now, RunTimeEstimate(longer, 1000.0))
    s.one.cancel(s.now, longer)
    assert s.state(longer) is LiveJobState.CANCELLED


def test_a_host_that_is_given_on_goes_on_and_one_that_comes_back_after_a_restart_is_used(stage):
    s = stage(hosts=("ada", "bob"), prefer=HostPreference({}))
    with_terms(s, ada=50.0, bob=9000.0)
    s.turn(60.0)  # the end has passed, and it is not yet known what comes then
    s.one.report(s.now, HostLease("ada", 9000.0, "allocation 8"))
    assert (s.one.state.hosts, s.one.lost) == (("ada", "bob"), {})
    _, (start,) = s.submit(2, 2)
    s.say(start, hosts=start.hosts)
    s.hosts = ("bob",)
    s.again()
    with_terms(s, ada=0.0, bob=9000.0)
    assert s.one.state.hosts == ("bob", "ada")  # a job has it
    with_terms(s, ada=9000.0)
    s.one.report(s.now, HostAnswer("ada"))
    s.say(start, AttemptPhase.ENDED, state="finished")
    s.left(start, "ada", "bob")
    _, (again,) = s.submit(2, 2)
    assert set(again.hosts) == {"ada", "bob"}


def test_where_hosts_join_a_job_waits_for_as_many_as_it_needs_and_says_so(stage):
    s = stage(policy=FirstComeFirstServed(), hosts=(), most_hosts=9, prefer=HostPreference({}))
    shown = queue_document(s.one, "x")
    assert re.findall(r"\d+", queue_text(shown).splitlines()[0])[:3] == ["0", "0", "0"]
    assert (shown["hosts"], shown["jobs"]) == ([], [])
    assert watched_text(shown, 40, 9).startswith("x: ")
    with pytest.raises(UsageError, check=with_code("too-many-hosts", value=10, bound=9)):
        s.submit(10, 10)
    wide, orders = s.submit(1, 3, JobKind.MALLEABLE)
    assert orders == []
    found = job_document(s.one, "x", s.one.job(wide))
    assert found["state"] == "held"
    assert in_order(found["reason"], "3", "none")  # this policy resizes nothing
    assert why_document(s.one, "x", s.one.job(wide))["position"] is None
    guessed = s.one.submit(s.now, JobSubmission(1, 1, requested=3600.0, modelled=True))
    assert s.turn(1.0) == []  # there is no host yet whose speed would say how long it runs
    assert [type(one) for one in with_terms(s, ada=9000.0)] == [EstimateOrder]
    s.one.report(s.now, HostAnswer("ada"))
    assert [type(one) for one in s.turn(1.0)] == [StartOrder]  # it passes the wide one
    assert s.one.job(guessed).hosts == ("ada",)
    assert in_order(job_document(s.one, "x", s.one.job(wide))["reason"], "3", "1")
    s.again()
    with_terms(s, bob=9000.0, cleo=9000.0, dan=9000.0)
    for host in ("bob", "cleo", "dan"):
        s.one.report(s.now, HostAnswer(host))
    begun = [one.job for one in s.turn(AT_ONCE.recovery_grace) if isinstance(one, StartOrder)]
    assert begun == [wide]
    s.one.log.close()


def test_a_policy_that_resizes_starts_on_the_hosts_that_have_joined_and_the_last_may_leave(stage):
    s = stage(policy=Equipartition(), hosts=("ada",), most_hosts=9, prefer=HostPreference({}))
    number, (start,) = s.submit(1, 3, JobKind.MALLEABLE)
    assert start.hosts == ("ada",)
    s.say(start, hosts=start.hosts)
    with_terms(s, ada=0.0)
    s.say(start, AttemptPhase.ENDED, state="failed", exit_code=4)
    s.left(start, "ada")
    s.turn(s.timeouts.check_interval)
    assert s.one.state.hosts == ()
    assert job_document(s.one, "x", s.one.job(number))["state"] == "held"


def test_a_user_is_told_why_a_job_cannot_be_put_on_a_host_whose_term_ends(stage):
    s = stage()
    _, (start,) = s.submit(1, 1, JobKind.MALLEABLE)
    s.say(start, hosts=start.hosts)
    with_terms(s, dan=50.0)
    with pytest.raises(
        LaunchError, check=with_code("host-busy", host="dan", reason="allocation 7 ends in 50 s")
    ):
        s.one.resize(s.now, start.job, ["dan"])
    s.one.drain(s.now, "cleo")
    with pytest.raises(LaunchError, check=with_code("host-busy", host="cleo", state="drained")):
        s.one.resize(s.now, start.job, ["cleo"])


def test_a_host_that_joins_gets_a_job_when_it_has_answered(stage):
    s = stage(hosts=("ada",), prefer=HostPreference({}))
    with pytest.raises(UsageError, check=with_code("too-many-hosts", value=2, bound=1)):
        s.submit(2, 2)
    with_terms(s, eve=inf)
    _, orders = s.submit(2, 2)
    assert orders == []
    s.one.report(s.now, HostAnswer("eve"))
    (start,) = s.turn()
    assert start.hosts == ("ada", "eve")
    with_terms(s, zoe=0.0)  # one that was never here
    assert s.one.state.hosts == ("ada", "eve")


OWNED = {host: NodeLoad(host, owner_first=host == "ada") for host in HOSTS}


def loaded(stage, order, **others):
    """Have all hosts measured, processes of others on some; the job of an order is where it is."""
    for host in HOSTS:
        wanting = {"": others.get(host, 0.0), order.folder if order else "x": 1.0}
        if not order:
            del wanting["x"]
        stage.one.report(stage.now, HostLoad(host, 1, wanting, (("memory", 0.5),)))
    return stage.turn()


def test_a_job_is_ordered_off_a_host_whose_owner_is_back_and_says_why(stage):
    s = stage(PaybackMigration(), nodes=OWNED, prefer=HostPreference({}))
    _, (start,) = s.submit(1, 1, JobKind.MALLEABLE)
    assert start.hosts == ("ada",)
    s.say(start, hosts=("ada",))
    assert loaded(s, start) == []  # our own processes are no owner's
    (resize,) = loaded(s, start, ada=0.4)
    assert isinstance(resize, ResizeOrder)
    assert len(resize.hosts) == 1
    assert resize.hosts != ("ada",)
    job = s.one.state.jobs[start.job]
    assert in_order(job.reason, "owner", "ada", "0.40", "0.3")
    s.say(start, hosts=resize.hosts, epoch=resize.epoch)
    s.left(start, "ada", epoch=resize.epoch)
    assert s.state(start.job) is LiveJobState.RUNNING
    assert s.one.state.host_state("ada") == "free"
    _, orders = s.submit(4, 4)
    assert orders == []  # the owner is there
    s.again()
    assert s.one.state.jobs[start.job].reason == job.reason


def test_the_reason_of_a_move_has_the_bytes_that_the_jobs_arrays_say(stage):
    s = stage(PaybackMigration(), nodes=OWNED, prefer=HostPreference({}))
    _, (start,) = s.submit(2, 2, JobKind.MALLEABLE)
    one, other = start.hosts
    sent = ((one, other, 3e4), (other, one, 2e4), (one, "zoe", 1e9), ("cleo", other, 1e9))
    s.say(start, hosts=start.hosts, messages=sent)
    (resize,) = loaded(s, start, ada=0.4)
    reason = s.one.state.jobs[start.job].reason
    assert in_order(reason, "5e+04")
    s.say(start, hosts=resize.hosts, epoch=resize.epoch, messages=sent)
    s.left(start, "ada", epoch=resize.epoch)
    s.say(start, hosts=resize.hosts, epoch=resize.epoch, messages=sent)
    running = s.one.ledger.running[start.job]
    assert all({a, b} <= running.node_ids for a, b, _ in running.messages)


@pytest.mark.parametrize("policy", [FirstFit, PaybackMigration])
def test_messages_are_noted_where_the_policy_looks_at_them(stage, policy):
    s = stage(policy(), nodes=OWNED, prefer=HostPreference({}))
    _, (start,) = s.submit(2, 2, JobKind.MALLEABLE)
    one, other = start.hosts
    s.say(start, hosts=start.hosts, messages=((one, other, 3e4), (one, "zoe", 1.0)))
    noted = s.one.ledger.running[start.job].messages
    nodes = HOSTS.index(one), HOSTS.index(other)
    assert noted == (((*nodes, 3e4),) if policy is PaybackMigration else ())


def test_what_the_host_list_says_anew_of_a_host_is_shown_though_its_load_is_as_it_was(stage):
    s = stage(PaybackMigration(), nodes=OWNED)
    loaded(s, None)
    s.one.nodes = {host: node._replace(processes=4) for host, node in OWNED.items()}
    loaded(s, None)
    assert {node.processes for node in s.one.ledger.loads} == {4}


def test_a_job_that_refuses_to_move_says_no_reason_and_one_that_is_over_is_no_owner(stage):
    s = stage(PaybackMigration(), nodes=OWNED, prefer=HostPreference({}))
    _, (start,) = s.submit(1, 1, JobKind.MALLEABLE)
    s.say(start, hosts=("ada",))
    (resize,) = loaded(s, start, ada=1.0)
    s.say(start, hosts=("ada",), epoch=resize.epoch, refused=True, reason="no")
    assert s.one.state.jobs[start.job].reason != "no"
    s.say(start, AttemptPhase.ENDED, state="finished")
    s.left(start, "ada")
    loaded(s, start)
    assert s.one.loads["ada"].others == 0.0


def test_no_load_is_shown_before_all_hosts_that_answer_were_measured_or_to_who_does_not_look(
    stage,
):
    s = stage(PaybackMigration(), nodes=OWNED, lost={"dan": "it is silent"})
    for host in ("ada", "bob"):
        s.one.report(s.now, HostLoad(host, 1, {"": 1.0}))
    assert s.one.ledger.loads == ()
    s.one.report(s.now, HostLoad("cleo", 1, {"": 1.0}))
    s.one.report(s.now, HostLoad("zoe", 1, {"": 1.0}))  # nobody's host
    assert [one.others for one in s.one.ledger.loads] == [1.0, 1.0, 1.0, 0.0]
    passes = s.one.passes
    s.turn()
    s.one.report(s.now, HostLoad("cleo", 1, {"": 1.01}))  # nothing follows from that
    s.turn()
    assert s.one.passes == passes + 1
    s.again()
    assert s.one.ledger.loads == ()
    s.one.policy = FirstFit()
    loaded(s, None, ada=1.0)
    assert s.one.ledger.loads == ()


def kinds(orders):
    return [type(one) for one in orders]


# ------------------------------------------------------------------------------- life of a job
def test_a_job_is_started_runs_and_ends_and_its_hosts_are_free_when_they_say_so(stage):
    s = stage()
    number, (start,) = s.submit(3, 3)
    assert isinstance(start, StartOrder)
    assert start.hosts == HOSTS[:3]
    second, orders = s.submit(2, 2)
    assert orders == []
    s.say(start)
    assert s.state(number) is LiveJobState.RUNNING
    s.say(start, AttemptPhase.ENDED, state="finished", exit_code=0)
    assert s.state(number) is LiveJobState.ENDING
    (next_start,) = s.left(start, "bob")
    assert s.state(number) is LiveJobState.ENDING
    assert (next_start.job, next_start.hosts) == (second, ("bob", "dan"))
    assert s.left(start, "ada", "cleo") == []
    assert s.state(number) is LiveJobState.FINISHED


def test_a_start_waits_for_exactly_the_hosts_that_a_shrunk_job_leaves(stage):
    s = stage(Equipartition())
    one, (first,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(first)
    two, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    assert isinstance(shrink, ResizeOrder)
    assert len(shrink.hosts) == 2
    assert s.say(shrink, epoch=shrink.epoch, hosts=shrink.hosts) == []
    gone = [host for host in HOSTS if host not in shrink.hosts]
    assert s.left(shrink, gone[0], epoch=shrink.epoch) == []
    (start,) = s.left(shrink, gone[1], epoch=shrink.epoch)
    assert (start.job, sorted(start.hosts)) == (two, gone)
    assert s.one.state.jobs[one].resizes == 1


def test_a_refused_shrink_leaves_both_jobs_as_they_were(stage):
    s = stage(Equipartition())
    one, (first,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(first)
    two, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    again = s.say(shrink, epoch=shrink.epoch, refused=True, reason="busy", hosts=HOSTS)
    assert s.one.state.jobs[one].hosts == HOSTS
    assert s.state(two) is LiveJobState.QUEUED
    assert [order.epoch for order in again] == [shrink.epoch + 1]  # it is decided anew


def test_a_job_whose_hosts_failed_it_waits_in_its_old_place_and_fails_after_three_attempts(stage):
    s = stage()
    number, (start,) = s.submit(4, 4)
    later, _ = s.submit(4, 4)
    for attempt in (1, 2, 3):
        assert (start.job, start.attempt) == (number, attempt)
        s.say(start, AttemptPhase.ENDED, state="failed", exit_code=4, reason="bob is gone")
        (start,) = s.left(start, *HOSTS)
    assert start.job == later
    assert s.one.state.jobs[number].reason == "bob is gone"
    assert s.state(number) is LiveJobState.FAILED


def test_a_job_that_fails_by_itself_is_not_started_again(stage):
    s = stage()
    number, (start,) = s.submit()
    s.say(start, AttemptPhase.ENDED, state="failed", exit_code=5)
    assert s.left(start, "ada") == []
    assert s.state(number) is LiveJobState.FAILED


def test_a_cancelled_job_keeps_its_hosts_until_it_is_over_and_they_are_left(stage):
    s = stage()
    number, (start,) = s.submit(4, 4)
    s.one.cancel(s.now, number)
    s.one.cancel(s.now, number)
    assert kinds(s.turn()) == [EndOrder]
    s.left(start, *HOSTS)
    assert s.state(number) is LiveJobState.ENDING
    s.say(start, AttemptPhase.ENDED, state="cancelled")
    assert s.state(number) is LiveJobState.CANCELLED


def test_a_host_that_is_not_left_is_quarantined_and_comes_back_when_it_says_so(stage):
    s = stage()
    number, (start,) = s.submit(4, 4)
    s.say(start)
    s.say(start, AttemptPhase.ENDED, state="finished", exit_code=0)
    s.left(start, "ada", "bob", "cleo")
    orders = s.turn(11.0)
    assert s.state(number) is LiveJobState.FINISHED
    assert s.one.state.host_state("dan") == "quarantined"
    assert [o.leaving for o in orders if isinstance(o, AskOrder)] == [(("dan", LAST),)]
    wide, orders = s.submit(4, 4)
    assert orders == []
    (second,) = s.left(start, "dan")
    assert second.job == wide


def test_a_drained_host_gets_no_job_until_it_is_resumed(stage):
    s = stage()
    s.one.drain(s.now, "ada")
    _, (start,) = s.submit(3, 3)
    assert start.hosts == HOSTS[1:]
    _, orders = s.submit()
    assert orders == []
    s.one.resume(s.now, "ada")
    assert [order.hosts for order in s.turn()] == [("ada",)]


def test_a_host_that_does_not_answer_gets_no_job_until_it_does(stage):
    s = stage()
    s.one.report(s.now, HostAnswer("ada", "ada: no route"))
    _, (start,) = s.submit(3, 3)
    assert start.hosts == HOSTS[1:]
    waiting, orders = s.submit()
    assert orders == []
    s.one.drain(s.now, "ada")
    s.one.report(s.now, HostAnswer("ada"))
    assert s.turn() == []  # it answers, and is still drained
    s.one.report(s.now, HostAnswer("ada", "ada: no route"))
    s.one.resume(s.now, "ada")
    assert s.turn() == []  # it may have jobs, and does not answer
    s.one.report(s.now, HostAnswer("ada"))
    assert [(order.job, order.hosts) for order in s.turn()] == [(waiting, ("ada",))]


def test_a_host_that_a_job_lost_is_given_to_another_when_it_says_that_it_is_empty(stage):
    s = stage()
    one, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    s.say(start, hosts=HOSTS[:3])  # dan is cut off, and the job goes on without it
    s.one.report(s.now, HostAnswer("dan", "dan: no route"))
    two, orders = s.submit()
    assert orders == []
    s.turn(20.0)
    entry = queue_document(s.one, "lab")["hosts"][3]
    assert (entry["state"], entry["job"]) == ("quarantined", None)
    assert in_order(entry["reason"], f"local.{one}", "dan: no route")
    s.one.report(s.now, HostAnswer("dan"))
    assert StartOrder not in kinds(s.turn())  # it answers: something of the job may be there
    (begun,) = [order for order in s.left(start, "dan") if isinstance(order, StartOrder)]
    assert (begun.job, begun.hosts) == (two, ("dan",))


def test_hosts_that_nobody_has_asked_yet_are_lost(stage):
    s = stage(lost={"ada": "it has not answered yet"})
    _, (start,) = s.submit()
    assert start.hosts == ("bob",)
    assert queue_document(s.one, "lab")["hosts"][0]["state"] == "lost"


def test_a_job_that_refuses_whatever_it_is_told_is_asked_ever_more_seldom(stage):
    """It may be told to go to a host that could not be used when it was started, and would be for ever."""
    s = stage(Equipartition())
    _, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    _, orders = s.submit(1, 4, JobKind.MALLEABLE)
    times = []
    for _ in range(3000):
        for order in orders:
            if isinstance(order, ResizeOrder):
                times.append(s.now)
                orders = s.say(start, epoch=order.epoch, refused=True, hosts=HOSTS, reason="no")
                break
        else:
            orders = s.turn(0.5)
    assert 7 <= len(times) <= 12
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps[-1] >= 300.0
    assert gaps == sorted(gaps)


def asked(s, start, hosts, **more):
    """Have the program of a running job ask for so many hosts; return the orders that follow."""
    return s.say(start, asks=(hosts, hosts), **more)


@pytest.mark.parametrize("policy", [FirstComeFirstServed(), FirstFit(), ShortestJobFirst(), Easy(), Conservative(),
                                    Equipartition()], ids=lambda one: type(one).__name__)  # fmt: skip
def test_an_evolving_job_grows_when_hosts_are_free_and_is_given_no_fewer_than_it_asks_for(
    stage, policy
):
    s = stage(policy)
    number, (start,) = s.submit(1, 4, JobKind.EVOLVING)
    if isinstance(policy, Equipartition):  # which chooses the size
        s.say(start)
        (shrink,) = asked(s, start, 1)
        s.say(start, epoch=1, hosts=shrink.hosts)
        s.left(start, *HOSTS[1:], epoch=1)
    assert len(s.one.job(number).hosts) == 1
    other, (second,) = s.submit(2, 2)
    s.say(second)
    epoch = s.one.job(number).epoch
    assert [
        order for order in asked(s, start, 3, epoch=epoch) if not isinstance(order, AskOrder)
    ] == []
    shown = job_document(s.one, "lab", s.one.job(number))
    assert shown["asks"] == [3, 3]
    assert in_order(shown["reason"], "3", "1")
    s.say(second, AttemptPhase.ENDED, state="finished", exit_code=0)
    (grow,) = s.left(second, *second.hosts)
    assert isinstance(grow, ResizeOrder)
    assert len(grow.hosts) == 3
    assert s.say(grow, epoch=grow.epoch, hosts=grow.hosts, asks=(3, 3)) == []
    assert s.state(number) is LiveJobState.RUNNING
    assert job_document(s.one, "lab", s.one.job(number))["reason"] == ""
    assert s.state(other) is LiveJobState.FINISHED


@pytest.mark.parametrize(("needs", "granted"), [(3, []), (2, [Resize(1, 2)])])
def test_conservative_backfilling_grants_a_growth_where_it_delays_no_promise(needs, granted):
    running = {
        1: RunningJob(Job(1, 0.0, 1, 100.0, 1, 4, JobKind.EVOLVING), 0.0, 1, 100.0, wanted=2),
        2: RunningJob(Job(2, 0.0, 2, 10.0, 2, 2), 0.0, 2, 10.0),
    }
    queue = [Job(3, 1.0, needs, 50.0, needs, needs)]
    state = ClusterState(4, free=1, queue=queue, running=running)
    assert list(Conservative().decide(state)) == [Reserve(3, 10.0), *granted]


def test_conservative_backfilling_grants_nothing_to_a_job_that_is_due_in_this_instant():
    job = Job(1, 0.0, 1, 10.0, 1, 4, JobKind.EVOLVING)
    running = {1: RunningJob(job, 0.0, 1, 10.0, wanted=2)}
    state = ClusterState(4, time=10.0, free=3, running=running)
    assert list(Conservative().decide(state)) == []


def test_conservative_backfilling_moves_promises_up_when_nodes_are_given_back():
    running = {
        1: RunningJob(Job(1, 0.0, 4, 100.0, 1, 4, JobKind.EVOLVING), 0.0, 4, 100.0, wanted=2)
    }
    queue = [Job(2, 1.0, 2, 50.0, 2, 2)]
    state = ClusterState(4, queue=queue, running=running, reservations={2: 100.0})
    assert list(Conservative().decide(state)) == [Resize(1, 2), Start(2, 2)]


@pytest.mark.parametrize(
    ("happens", "promises"),
    [
        ("expected sooner", {2: 20.0, 3: 70.0}),
        ("cancelled", {3: 100.0}),
        ("estimated shorter", {2: 100.0, 3: 120.0}),
        ("undrained", {3: 55.0}),  # the second is started, and needs 50 s
    ],
)
def test_a_promise_moves_up_whatever_makes_room(stage, happens, promises):
    s = stage(Conservative(), hosts=("ada", "bob"))
    for seconds in (100.0, 50.0, 10.0):
        two = JobSubmission(2, 2, requested=seconds, modelled=seconds == 50.0)
        s.one.submit(s.now, two)
    (start,) = [order for order in s.turn() if isinstance(order, StartOrder)]
    s.say(start)
    s.say(start, iteration=0, iterations=100)
    assert s.one.state.promises == {2: 100.0, 3: 150.0}
    s.turn(5.0)
    if happens == "expected sooner":
        s.say(start, iteration=25, iterations=100)
    elif happens == "cancelled":
        s.one.cancel(s.now, 2)
    elif happens == "estimated shorter":
        s.one.report(s.now, RunTimeEstimate(2, 20.0))
    else:
        s.one.drain(s.now, "bob")
        s.say(start, AttemptPhase.ENDED, state="finished")
        s.left(start, *start.hosts)
        assert s.state(2) is LiveJobState.QUEUED
        s.one.resume(s.now, "bob")
    s.turn()
    assert s.one.state.promises == promises


def test_hosts_that_an_evolving_job_gives_back_start_the_next_job(stage):
    s = stage(Easy())
    number, (start,) = s.submit(4, 4, JobKind.EVOLVING)
    s.one.cancel(s.now, number)
    s.turn()
    s.say(start, AttemptPhase.ENDED, state="cancelled")
    s.left(start, *HOSTS)
    number, (start,) = s.submit(1, 4, JobKind.EVOLVING)
    (grow,) = asked(s, start, 4)
    s.say(start, epoch=1, hosts=grow.hosts)
    waiting, orders = s.submit(2, 2)
    assert orders == []
    (shrink,) = asked(s, start, 2, epoch=1)
    assert len(shrink.hosts) == 2
    s.say(start, epoch=2, hosts=shrink.hosts)
    gone = [host for host in HOSTS if host not in shrink.hosts]
    (begun,) = s.left(start, *gone, epoch=2)
    assert (begun.job, sorted(begun.hosts)) == (waiting, gone)


def test_what_a_job_asks_for_is_known_after_a_restart_and_forgotten_with_the_attempt(stage):
    s = stage()
    number, (start,) = s.submit(1, 4, JobKind.EVOLVING)
    _, (other,) = s.submit(3, 3)
    s.say(other)
    asked(s, start, 2)
    s.again()
    assert s.one.job(number).asks == (2, 2)
    s.say(start)
    s.say(other, AttemptPhase.ENDED, state="failed", exit_code=5)
    (grow,) = s.left(other, *other.hosts)
    assert (grow.job, len(grow.hosts)) == (number, 2)
    s.say(start, AttemptPhase.ENDED, state="failed", exit_code=4)
    (again,) = s.left(start, *grow.hosts)
    assert (again.job, again.attempt, len(again.hosts)) == (number, 2, 1)
    assert s.one.job(number).asks is None


def test_what_a_malleable_job_asks_for_bounds_what_the_policy_gives_it(stage):
    s = stage(Equipartition())
    number, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    (shrink,) = s.say(start, asks=(1, 2))
    assert len(shrink.hosts) == 2
    s.say(start, epoch=1, hosts=shrink.hosts)
    assert s.left(start, *(host for host in HOSTS if host not in shrink.hosts), epoch=1) == []
    (grow,) = s.say(start, asks=(3, 3), epoch=1)
    assert len(grow.hosts) == 3
    assert s.one.job(number).holds == set(grow.hosts)


@pytest.mark.parametrize(
    ("kind", "least", "asks", "values"),
    [
        (JobKind.RIGID, 2, (3, 3), ["3", "rigid"]),
        (JobKind.EVOLVING, 2, (5, 9), ["5", "9", "2", "2"]),
        (JobKind.EVOLVING, 2, (1, 1), ["1", "2", "2"]),
        (JobKind.EVOLVING, 2, (1, 3), []),
    ],
)
def test_a_job_that_asks_for_what_it_cannot_have_goes_on_and_the_queue_says_why(
    stage, kind, least, asks, values
):
    s = stage()
    number, (start,) = s.submit(least, 2, kind)
    assert s.say(start, asks=asks) == []
    reason = job_document(s.one, "lab", s.one.job(number))["reason"]
    assert bool(reason) == bool(values)
    assert in_order(reason, *values)


def test_a_job_that_is_slower_than_was_estimated_makes_room_for_one_that_fits_beside_it(stage):
    s = stage(Easy())
    first, (start,) = s.submit(2, 2)
    s.say(start)
    s.say(start, iteration=0, iterations=1000)
    _, orders = s.submit(4, 4)  # it waits for the first, until 100 s by its estimate
    assert orders == []
    s.one.submit(s.now, JobSubmission(1, 1, requested=500.0))
    assert s.turn() == []
    shown = queue_document(s.one, "lab")["jobs"][0]
    assert shown["expected_end"] is None
    s.now += 10.0
    (begun,) = [order for order in s.say(start, iteration=10, iterations=1000)
                if isinstance(order, StartOrder)]  # fmt: skip
    assert begun.job == 3
    shown = queue_document(s.one, "lab")
    assert shown["jobs"][0]["expected_end"] == 1e9 + 1000.0
    assert "990 s" in queue_text(shown)
    assert s.one.ledger.running[first].limit == 1000.0
    s.say(start, AttemptPhase.ENDED, state="finished", exit_code=0)
    assert queue_document(s.one, "lab")["jobs"][0]["expected_end"] is None
    s.left(start, *start.hosts)
    assert s.one.paces == {}


def test_snapshot_takes_measured_end_of_running_job_in_place_of_its_estimate(stage):
    s = stage(Easy())
    _, (start,) = s.submit(2, 2)
    s.say(start)
    s.say(start, iteration=0, iterations=1000)
    s.now += 10.0
    s.say(start, iteration=10, iterations=1000)
    shown = queue_document(s.one, "lab")["jobs"][0]
    (running,) = snapshot_of(s.one).jobs
    assert running.measured
    assert running.requested - running.done == pytest.approx(990.0)
    assert shown["expected_end"] - 1e9 - s.now == pytest.approx(990.0)


def test_reason_names_the_hosts_on_which_the_policy_starts_a_job(stage):
    s = stage(Easy())
    _, (start,) = s.submit(2, 2)
    s.say(start)
    number, orders = s.submit(1, 4, JobKind.MOLDABLE)  # moldable: Easy starts it on four
    assert orders == []
    why = why_document(s.one, "lab", s.one.job(number))
    assert (why["needs"], why["free"]) == (4, 2)
    assert why["reason"] == "needs 4 hosts, 2 are free"
    assert why["blocking"] == ["lab.1"]


def test_policy_that_fails_again_and_again_hides_no_other_alarm(stage):
    s = stage()
    s.one.refuse(Refused(Start(1, 1), 0.0, "the first alarm"))
    for kind in ("raises", "put aside"):
        for at in range(200):
            s.one.policy_failed(PolicyFailure(kind, "mine.py:Mine", float(at), "mine.py:3", "no"))
    alarms = [text for _, text in s.one.alarms]
    assert len(alarms) == 3
    assert "the first alarm" in alarms[0]


def test_scheduler_answers_and_starts_jobs_while_a_policy_of_the_user_sleeps(stage, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import time\nfrom apples.scheduling import Easy\n\nclass Mine(Easy):\n"
        "    def decide(self, cluster):\n        time.sleep(60 if cluster.running else 0)\n"
        "        return super().decide(cluster)\n"
    )
    policy = GuardedPolicy(f"{path}:Mine", seconds=12.0)
    answered = threading.Event()
    policy.on_answer = answered.set
    s = stage(policy=policy)

    def orders_of_answer():
        assert answered.wait(60.0)
        answered.clear()
        return s.turn()

    _, orders = s.submit(2, 2)
    (start,) = orders or orders_of_answer()
    s.say(start)
    began = thread_time()
    for _ in range(2):
        _, orders = s.submit(1, 1)
        assert orders == []
    s.turn()
    assert thread_time() - began < 1.0
    orders = []
    for _ in range(20):
        orders += orders_of_answer()
        if orders:
            break
    alarms = [text for _, text in s.one.alarms]
    assert ["no answer within 12 s" in text for text in alarms] == [True]
    assert len(orders) == 2
    policy.close()


def test_queue_shows_a_job_whose_result_is_verified_and_when_that_ends(stage):
    s = stage()
    number, (start,) = s.submit(2, 2)
    s.say(start, iteration=1000, iterations=1000)
    s.say(start, iteration=1000, iterations=1000, verifying_until=1e9 + 80.0)
    (shown,) = queue_document(s.one, "lab")["jobs"]
    assert (shown["state"], shown["expected_end"]) == ("verifying", 1e9 + 80.0)
    assert in_order(queue_text(queue_document(s.one, "lab")), "verifying", "80.0 s")
    assert why_document(s.one, "lab", s.one.job(number))["state"] == "verifying"
    s.again()
    assert queue_document(s.one, "lab")["jobs"][0]["state"] == "running"  # until it is asked
    s.say(start, verifying_until=1e9 + 80.0)
    assert queue_document(s.one, "lab")["jobs"][0]["state"] == "verifying"
    s.say(start, AttemptPhase.ENDED, state="finished", exit_code=0)
    assert queue_document(s.one, "lab")["jobs"][0]["state"] == "ending"


@given(
    iterations=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.0, 1e4)), max_size=30),
)
def test_an_expected_end_is_never_past_when_it_is_said_and_a_steady_job_ends_then(
    iterations, steps
):
    pace, at, now = JobPace(("ada",), 0.0, 0, 0.0), 0, 0.0
    for more, seconds in steps:
        at, now = at + more, now + seconds
        before, pace = pace.end, pace.after(("ada",), at, iterations, now)
        if pace.end is not None and pace.end != before:
            assert pace.end >= now
            assert pace.end - now <= 1e9 * 1.0001
    steady = JobPace(("ada",), 0.0, 0, 0.0).after(("ada",), 50, 100, 50.0)
    assert steady.after(("ada",), 60, 100, 60.0).end == 100.0


TWO_SITES = HostPreference({
    "ada": ("here", 1.0), "bob": ("here", 2.0), "cleo": ("there", 3.0), "dan": ("there", 4.0),
})  # fmt: skip


def test_a_job_is_put_on_fast_hosts_of_one_site_where_one_suffices(stage):
    s = stage(prefer=TWO_SITES)
    _, (first,) = s.submit()
    assert first.hosts == ("dan",)
    second, (order,) = s.submit(2, 2)
    assert order.hosts == ("ada", "bob")  # cleo is faster, and alone at its site
    assert why_document(s.one, "lab", s.one.job(second))["placed"] == "ada, bob of site here"
    _, (last,) = s.submit()
    assert last.hosts == ("cleo",)


def test_a_job_that_tells_its_messages_is_put_on_hosts_that_are_near_each_other(stage):
    sites = {"ada": ("x", 1e-6), "bob": ("y", 1e-6), "cleo": ("z", 3e-6), "dan": ("q", 1e-6)}
    hosts = tuple(Host(n, site=s, seconds_per_point=speed) for n, (s, speed) in sites.items())
    far, near = Link(0.1, 1e5), Link(1e-3, 1e7)
    links = {(a, b): near if {a, b} == {"x", "z"} else far for a in "xyzq" for b in "xyzq"}
    network = Network(links, None, {host.name: host.site for host in hosts})
    s = stage(prefer=HostPreference.of(HostList(hosts, network)))
    blind, (order,) = s.submit(2, 2)
    assert "cleo" not in order.hosts
    s.one.cancel(s.now, blind)
    s.say(order, AttemptPhase.ENDED, state="cancelled")
    s.left(order, *order.hosts)
    told = ((0, 7), (7, 0))
    number = s.one.submit(s.now, JobSubmission(2, 2, JobKind.RIGID, 100.0, messages=told))
    (order,) = s.turn()
    assert order.hosts == ("ada", "cleo")
    document = submission_document(s.one.job(number).submission)
    assert submission_of(json.loads(json.dumps(document))).messages == told


@pytest.mark.parametrize(
    "messages", [[[0]] * 2, [[0, -1], [0, 0]], [[0, 1001], [0, 0]], [[0] * 33] * 33, 3, [["x"]]]
)
def test_messages_that_are_no_square_of_small_counts_are_refused(messages):
    document = {**submission_document(JobSubmission(1, 1)), "messages": messages}
    with pytest.raises(UsageError, check=with_code("request-invalid", field="submission")):
        checked(document)


def test_a_shrunk_job_gives_up_what_costs_it_least_and_grows_at_its_site(stage):
    s = stage(Equipartition(), prefer=TWO_SITES)
    _, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    _, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    assert shrink.hosts == ("cleo", "dan")
    s.say(start, epoch=1, hosts=shrink.hosts)
    (other,) = s.left(start, "ada", "bob", epoch=1)
    s.say(other)
    last, (again,) = s.submit(1, 1)
    assert (again.job, again.hosts) == (other.job, ("bob",))
    s.say(other, epoch=1, hosts=("bob",))
    (begun,) = s.left(other, "ada", epoch=1)
    s.say(begun)
    s.one.cancel(s.now, last)
    s.say(begun, AttemptPhase.ENDED, state="cancelled")
    (grown,) = s.left(begun, "ada")
    assert (grown.job, set(grown.hosts)) == (other.job, {"ada", "bob"})


def test_a_shrunk_job_gives_up_the_hosts_that_it_has_found_slow_whatever_the_list_says(stage):
    s = stage(Equipartition(), prefer=TWO_SITES)
    _, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    s.say(start, speeds={"ada": 9.0, "bob": 9.0, "cleo": 1.0, "dan": 1.0})
    other, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    assert shrink.hosts == ("ada", "bob")  # by the list it would keep cleo and dan
    s.say(start, epoch=1, hosts=shrink.hosts)
    s.left(start, "cleo", "dan", epoch=1)
    assert s.one.job(other).hosts == ("cleo", "dan")


def test_a_job_that_is_shrunk_keeps_the_host_that_it_cannot_leave_and_then_the_best(stage):
    s = stage(Equipartition(), prefer=TWO_SITES)
    _, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    s.say(start, anchor="bob", speeds={"ada": 2.0, "bob": 1.0, "cleo": 9.0, "dan": 8.0})
    _, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    assert set(shrink.hosts) == {"bob", "ada"}  # of one site, the anchor's


def test_speeds_that_a_job_has_measured_on_some_of_its_hosts_are_not_mixed_with_the_lists(stage):
    s = stage(Equipartition(), prefer=TWO_SITES)
    _, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    s.say(start, speeds={"ada": 1e6, "bob": 1e6, "cleo": 1e6})
    _, (shrink,) = s.submit(1, 4, JobKind.MALLEABLE)
    assert shrink.hosts == ("cleo", "dan")


def modelled(stage, least=2, most=2, kind=JobKind.RIGID, **more):
    """Submit a job whose application has a template; return its number and the orders."""
    one = JobSubmission(least, most, kind, 100.0, work={"template": "t.toml"}, **more)
    return stage.one.submit(stage.now, one), stage.turn()


def answer(stage, order, *choices, seconds=30.0):
    """Have the model answer an order with sets of hosts; return the orders that follow."""
    sets = tuple((tuple(hosts.split()), seconds) for hosts in choices)
    stage.one.report(stage.now, RunTimeEstimate(order.job, None, sets))
    return stage.turn()


def why(stage, number):
    return why_document(stage.one, "lab", stage.one.job(number))


def test_a_job_gets_the_hosts_that_its_model_chooses_and_says_who_has_chosen(stage):
    s = stage(prefer=TWO_SITES)
    number, (asked,) = modelled(s)
    assert isinstance(asked, EstimateOrder)
    assert (asked.among, asked.hosts) == (HOSTS, 2)
    waiting = why(s, number)
    assert (waiting["state"], waiting["placed_by"]) == ("held", "")
    assert in_order(waiting["reason"], "model")
    assert s.turn(0.5) == []
    (start,) = answer(s, asked, "bob dan", "ada cleo")
    assert start.hosts == ("bob", "dan")
    assert in_order(why(s, number)["placed_by"], "model", "30 s")
    s.say(start)
    assert in_order(why_text(why(s, number)), "model", "30 s")
    s.again()
    assert in_order(why(s, number)["placed_by"], "model", "30 s")


def test_model_is_asked_once_and_its_next_set_of_hosts_taken_where_the_first_is_not_free(stage):
    s = stage(prefer=TWO_SITES)
    _, (first,) = s.submit(1, 1)
    assert first.hosts == ("dan",)
    number, (asked,) = modelled(s)
    (start,) = answer(s, asked, "bob dan", "ada cleo")
    assert (start.job, start.hosts) == (number, ("ada", "cleo"))
    for order in (first, start):
        s.say(order, AttemptPhase.ENDED, state="failed", exit_code=4)
    orders = [*s.left(first, *first.hosts), *s.left(start, *start.hosts)]
    assert kinds(orders) == [StartOrder, StartOrder]
    assert orders[1].hosts == ("ada", "cleo")


def test_choices_of_a_model_outlive_the_scheduler(stage):
    s = stage(prefer=TWO_SITES)
    _, (first,) = s.submit(4, 4)
    number, (asked,) = modelled(s)
    assert answer(s, asked, "ada bob") == []
    s.again()
    s.say(first)
    s.say(first, AttemptPhase.ENDED, state="finished")
    orders = s.left(first, *first.hosts)
    assert kinds(orders) == [StartOrder]
    assert (orders[0].job, orders[0].hosts) == (number, ("ada", "bob"))


@pytest.mark.parametrize("choices", [[], ["ada cleo"], ["eve fred"]])
def test_where_the_model_cannot_choose_or_its_hosts_are_taken_a_job_gets_those_of_the_list(
    stage, choices
):
    s = stage(prefer=TWO_SITES)
    s.one.drain(s.now, "cleo")
    number, (asked,) = modelled(s, 1, 1)
    choices = [hosts.split()[-1] for hosts in choices]
    (start,) = answer(s, asked, *choices)
    assert start.hosts == ("dan",)
    assert in_order(why(s, number)["placed_by"], "the host list", "model")


def test_a_model_that_does_not_answer_holds_a_job_up_for_a_limited_time(stage):
    s = stage(prefer=TWO_SITES)
    number, (asked,) = modelled(s)
    assert s.turn(s.timeouts.model / 2) == []
    _, (other,) = s.submit(1, 1)
    assert other.hosts == ("dan",)
    (start,) = s.turn(s.timeouts.model)
    assert (start.job, start.hosts) == (number, ("ada", "bob"))
    assert in_order(why(s, number)["placed_by"], "3 s")
    assert answer(s, asked, "ada cleo") == []  # too late


def test_a_job_that_is_cancelled_or_a_scheduler_that_is_killed_while_a_model_is_asked(stage):
    s = stage(prefer=TWO_SITES)
    number, (asked,) = modelled(s)
    s.one.cancel(s.now, number)
    assert answer(s, asked, "ada bob") == []
    other, (asked,) = modelled(s)
    s.again()
    (again,) = s.turn(s.timeouts.check_interval)
    assert (again.job, again.among) == (other, HOSTS)
    (start,) = answer(s, again, "ada bob")
    assert start.hosts == ("ada", "bob")
    assert s.state(number) is LiveJobState.CANCELLED


def test_who_has_no_model_or_tells_messages_or_chooses_among_hosts_that_are_alike_asks_none(stage):
    s = stage(prefer=TWO_SITES)
    _, orders = s.submit(1, 1)
    assert kinds(orders) == [StartOrder]
    _, orders = modelled(s, messages=((0, 1), (1, 0)))
    assert kinds(orders) == [StartOrder]


def test_hosts_that_are_alike_but_for_their_load_are_chosen_by_the_model(stage):
    alike = HostList(tuple(Host(name, seconds_per_point=1e-6) for name in HOSTS), Network())
    s = stage(prefer=HostPreference.of(alike))
    _, orders = modelled(s, 1, 1)
    assert kinds(orders) == [StartOrder]
    s.one.report(s.now, HostLoad("bob", 1, {"": 1.0}))
    _, (asked,) = modelled(s, 1, 1)
    assert asked.shares == {"bob": 0.5}


# ------------------------------------------------------------- what outlives every pass and restart
def test_usage_of_users_outlives_a_released_job_and_a_restart(stage):
    s = stage(SlurmBackfill(PriorityWeightFairshare=1000))
    ann = JobSubmission(1, 1, requested=100.0, user="ann")
    first = s.one.submit(s.now, replace(ann, minimum=2, maximum=2))
    (start,) = s.turn()
    s.say(start)
    after = s.one.submit(s.now, replace(ann, user="bob", after=(first,)))
    s.turn(50.0)
    s.say(start, AttemptPhase.ENDED, state="finished")
    assert s.left(start, *start.hosts)[0].job == after
    used = dict(s.one.ledger.state.usage)
    assert used["ann"] == pytest.approx(100.0, rel=1e-3)
    s.turn(7.0)
    s.again(1e9 + s.now)
    kept = s.one.ledger.state.usage
    assert kept["ann"] == pytest.approx(used["ann"], rel=1e-3)
    assert kept["bob"] == pytest.approx(7.0, rel=1e-3)
    s.turn(20.0)
    assert s.one.ledger.state.usage["bob"] == pytest.approx(27.0, rel=1e-3)


def test_promises_outlive_a_released_job_and_a_restart_and_are_kept(stage):
    s = stage(Conservative())
    first, (start,) = s.submit(3, 3)
    s.say(start)
    wide, orders = s.submit(4, 4)
    assert orders == []
    promised = dict(s.one.ledger.state.reservations)
    assert promised == {wide: pytest.approx(100.0, abs=1.0)}
    short = s.one.submit(s.now, JobSubmission(1, 1, requested=5.0))
    (begun,) = s.turn()
    assert begun.job == short
    s.one.submit(s.now, JobSubmission(1, 1, requested=500.0, after=(short,)))
    s.say(begun, AttemptPhase.ENDED, state="finished")
    s.left(begun, *begun.hosts)
    assert s.one.ledger.state.reservations[wide] == promised[wide]
    s.again()
    assert s.one.ledger.state.reservations[wide] == promised[wide]
    s.say(start)
    orders = s.turn(promised[wide] - s.now)  # the first overruns: nothing else is started
    assert StartOrder not in kinds(orders)
    assert s.one.passes > 0
    assert first in s.one.ledger.running


def test_promises_of_another_policy_are_forgotten(stage):
    s = stage(Conservative())
    _, (start,) = s.submit(3, 3)
    s.say(start)
    s.submit(4, 4)
    s.policy = Easy()
    s.again()
    assert s.one.ledger.state.reservations == {}


class NoJobs(JobExecutor):
    """Carries nothing out."""

    def carry_out(self, orders):
        pass

    def reports(self):
        return []

    def close(self):
        pass


class Fails(SchedulingPolicy):
    """Raises an error while a job is running."""

    def __init__(self, error):
        self.error = error

    def decide(self, cluster):
        if cluster.running:
            raise self.error
        return [Start(job.id, 1) for job in cluster.queue]


def test_first_come_first_served_decides_where_a_policy_of_apples_fails(stage):
    s = stage(Fails(ValueError("no such thing")))
    _, (start,) = s.submit()
    s.say(start)
    second, orders = s.submit()
    assert [(order.job, order.hosts) for order in orders] == [(second, ("bob",))]
    s.submit()
    (alarm,) = [text for _, text in s.one.alarms]
    assert in_order(alarm, "Fails", "ValueError: no such thing", "first-come-first-served")


class FailingExecutor(NoJobs):
    """Raises an error wherever the deciding thread calls it."""

    def carry_out(self, orders):
        raise OSError(errno.ENOSPC, "No space left on device", "orders")

    def reports(self):
        raise RuntimeError("no reports")


def test_deciding_thread_goes_on_and_raises_an_alarm_whatever_is_raised(stage):
    s = stage(Fails(UsageError("no such option", code="value-unknown")))
    service = SchedulerService(s.one, lambda: s.now)
    deciding = threading.Thread(target=service.run, args=(FailingExecutor(),))
    deciding.start()
    try:
        for _ in range(3):
            service.ask(service.submit({"submission": SUBMITTED}, OPERATOR))
        alarms = [one["text"] for one in service.ask(service.queue())["alarms"]]
    finally:
        service.stop()
        deciding.join()
    for words in ("no such option", "orders: No space left on device", "RuntimeError: no reports"):
        assert sum(words in alarm for alarm in alarms) == 1


class Holds(SchedulingPolicy):
    """Takes the second job out of the queue."""

    def decide(self, cluster):
        for job in cluster.queue:
            yield Hold(job.id, "not today") if job.id == 2 else Start(job.id, 1)


def test_a_job_that_a_policy_holds_is_held_after_a_released_job_and_a_restart(stage):
    s = stage(Holds())
    first, (start,) = s.submit()
    number, orders = s.submit()
    assert (number, orders) == (2, [])
    s.one.submit(s.now, JobSubmission(1, 1, after=(first,)))
    s.say(start)
    s.say(start, AttemptPhase.ENDED, state="finished")
    assert [one.job for one in s.left(start, *start.hosts)] == [3]
    s.again()
    s.turn()
    shown = queue_document(s.one, "lab")["jobs"][1]
    assert (shown["state"], shown["reason"]) == ("held", "not today")
    assert [job.id for job in s.one.ledger.state.held] == [2]
    s.one.cancel(s.now, number)
    assert s.one.ledger.state.held == ()


class Told(SchedulingPolicy):
    """Starts what waits first, and makes the decisions that `decided` returns about the running jobs."""

    def __init__(self, decided):
        self.decided = decided

    def decide(self, cluster):
        free = cluster.free
        for job in cluster.queue:
            if job.processors <= free:
                free -= job.processors
                yield Start(job.id, job.processors)
        for running in cluster.running.values():
            yield from self.decided(running)


def elsewhere(running):
    """Move a job to the other two hosts."""
    return [Migrate(running.job.id, frozenset(range(4)) - running.node_ids)]


@pytest.mark.parametrize(
    "decision",
    [
        lambda running: Resize(running.job.id, running.nodes),
        lambda running: Migrate(running.job.id, running.node_ids),
    ],
    ids=["resize", "migrate"],
)
def test_job_that_a_policy_leaves_where_it_is_gets_no_order(stage, decision):
    s = stage(Told(lambda running: [decision(running)]))
    number, (start,) = s.submit(2, 2, JobKind.MALLEABLE)
    assert s.say(start) == []
    assert s.state(number) is LiveJobState.RUNNING
    _, orders = s.submit()
    assert kinds(orders) == [StartOrder]


def test_cancelled_job_cannot_be_moved(stage):
    seen = []
    s = stage(Told(lambda running: (seen.append(running.changing), elsewhere(running))[1]))
    number, (start,) = s.submit(2, 2)
    s.one.cancel(s.now, number)
    seen.clear()
    assert kinds(s.turn()) == [EndOrder]
    assert seen == [True]
    assert s.state(number) is LiveJobState.ENDING
    s.say(start, AttemptPhase.ENDED, state="cancelled")
    s.left(start, *start.hosts)
    assert s.state(number) is LiveJobState.CANCELLED


@pytest.mark.parametrize("kind", [JobKind.RIGID, JobKind.MALLEABLE])
def test_job_that_is_starting_cannot_be_moved_and_its_order_is_sent_again(stage, kind):
    s = stage(Told(elsewhere))
    number, (start,) = s.submit(2, 2, kind)
    s.one.drain(s.now, "ada")
    s.turn()
    assert s.state(number) is LiveJobState.STARTING
    assert [order for order in s.turn(20.0) if isinstance(order, StartOrder)] == [start]


def test_running_rigid_job_cannot_be_moved(stage):
    s = stage(Told(elsewhere))
    number, (start,) = s.submit(2, 2)
    assert s.say(start) == []
    s.one.drain(s.now, "ada")
    assert s.turn() == []
    assert s.state(number) is LiveJobState.RUNNING


@pytest.mark.parametrize(
    "then",
    [Start(1, 2, node_ids=frozenset({2, 3})), Reject(1, "no"), Hold(1, "not now")],
    ids=repr,
)
def test_attempt_that_a_policy_requeues_is_over_before_the_job_is_decided_about_again(stage, then):
    s = stage(Told(lambda running: [Requeue(running.job.id), then]))
    number, (start,) = s.submit(2, 2)
    assert kinds(s.say(start)) == [EndOrder]
    assert s.turn() == []
    s.left(start, *start.hosts)
    assert s.state(number) is LiveJobState.ENDING  # its processes have not ended yet
    assert s.one.job(number).attempt == 1
    s.say(start, AttemptPhase.ENDED, state="cancelled")
    assert s.one.job(number).held == ("not now" if isinstance(then, Hold) else "")
    assert s.state(number) is not LiveJobState.FAILED


def test_job_that_a_policy_held_is_queued_again_under_another_policy(stage):
    s = stage(Holds())
    s.submit()
    number, _ = s.submit()
    s.again()
    assert s.one.job(number).held == "not today"
    s.policy = Easy()
    s.again()
    assert s.one.job(number).held == ""
    s.say(AskOrder(1, 1, 1, "", ()), hosts=HOSTS[:1])
    assert s.state(number) is LiveJobState.STARTING


def test_run_is_charged_once_while_its_hosts_are_being_left(stage):
    s = stage(SlurmBackfill(PriorityWeightFairshare=1000))
    s.one.submit(s.now, JobSubmission(2, 2, requested=100.0, user="ann"))
    (start,) = s.turn()
    s.say(start)
    s.turn(50.0)
    s.say(start, AttemptPhase.ENDED, state="finished")
    assert s.one.ledger.state.usage["ann"] == pytest.approx(100.0, rel=1e-3)
    s.again(1e9 + s.now)
    assert s.one.ledger.state.usage["ann"] == pytest.approx(100.0, rel=1e-3)
    s.left(start, *start.hosts)
    assert s.one.ledger.state.usage["ann"] == pytest.approx(100.0, rel=1e-3)


def test_hosts_leased_too_short_for_one_job_start_the_next_at_once(stage):
    s = stage(prefer=HostPreference({}))
    with_terms(s, ada=50.0 + s.timeouts.vacate)
    s.one.submit(s.now, JobSubmission(3, 3, requested=500.0))
    (wide,) = s.turn()
    assert wide.hosts == HOSTS[1:]
    waiting = s.one.submit(s.now, JobSubmission(1, 1, requested=500.0))
    short = s.one.submit(s.now, JobSubmission(1, 1, requested=20.0))
    orders = [*s.turn(), *s.turn()]
    assert [(order.job, order.hosts) for order in orders] == [(short, ("ada",))]
    assert s.state(waiting) is LiveJobState.QUEUED


def test_a_log_of_an_earlier_format_is_read(stage):
    s = stage()
    _, (start,) = s.submit()
    records, _, _ = parse((s.directory / "journal").read_bytes())
    old = [
        {key: one[key] for key in one if key not in {"policy", "cpus", "half_life"}}
        for one in records
    ]
    s.one.log.close()
    log = SchedulerLog(Folder.open(s.directory, links=True))
    state, problems = folded(old)
    assert (state.jobs, problems) == (log.recover()[0].jobs, [])
    log.rewrite(state)
    log.close()
    s.begin()
    s.say(start)
    assert s.state(1) is LiveJobState.RUNNING


def test_bad_requests_are_refused_in_a_line(stage):
    s = stage()
    with pytest.raises(UsageError, check=with_code("too-many-hosts", value=9, bound=4)):
        s.submit(9, 9)
    with pytest.raises(UsageError, check=with_code("job-unknown", job="local.7")):
        s.one.cancel(s.now, 7)
    with pytest.raises(UsageError, check=with_code("host-unknown", host="eve", known=list(HOSTS))):
        s.one.drain(s.now, "eve")


# ------------------------------------------------------------------------------------ the log
def test_hosts_at_the_start_of_a_job_stay_those_after_a_resize_and_a_restart(stage):
    s = stage(Equipartition())
    (_, (start,)) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start, hosts=start.hosts)
    _, (resize,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start, epoch=resize.epoch, hosts=resize.hosts)
    s.again()
    (job, _) = queue_document(s.one, "local")["jobs"]
    assert job["hosts"] == list(resize.hosts)
    assert job["started_on"] == list(start.hosts) != job["hosts"]


def test_times_of_a_job_are_the_same_after_a_restart(stage):
    s = stage()
    s.now = 12.345678
    s.submit()
    before = queue_document(s.one, "local")["jobs"][0]
    for k in range(1, 20):
        s.now += 1.0
        s.again(wall=1e9 + s.now + 0.37e-6 * k)
        after = queue_document(s.one, "local")["jobs"][0]
        assert [after[key] for key in ("submitted", "started")] == [
            before[key] for key in ("submitted", "started")
        ]


def test_a_restart_asks_every_job_and_starts_nothing_before_they_have_answered(stage):
    s = stage()
    number, (start,) = s.submit(2, 2)
    s.say(start)
    s.submit(4, 4)
    s.again()
    _, orders = s.submit(2, 2)
    assert kinds(orders) == [AskOrder]
    orders = s.say(start, hosts=start.hosts)
    assert [order.hosts for order in orders] == [HOSTS[2:]]
    assert s.one.state.jobs[number].hosts == HOSTS[:2]


def test_jobs_that_do_not_answer_after_a_restart_keep_their_hosts_and_hold_up_nobody(stage):
    s = stage()
    _, (start,) = s.submit(2, 2)
    s.again()
    s.submit(2, 2)
    starts = [order for order in s.turn(10.1) if isinstance(order, StartOrder)]
    assert [order.hosts for order in starts if order.job != start.job] == [HOSTS[2:]]


def test_a_start_whose_order_was_lost_is_the_same_attempt_again(stage):
    s = stage()
    _, (start,) = s.submit()
    s.again()
    s.turn()
    (again,) = s.say(start, AttemptPhase.ABSENT)
    assert (again.attempt, again.folder) == (start.attempt, start.folder)
    assert again.incarnation == start.incarnation + 1


def test_the_same_request_is_the_same_job_and_another_under_its_id_is_refused(stage):
    s = stage()
    number, _ = s.submit(request="r1")
    s.again()
    assert s.submit(request="r1")[0] == number
    with pytest.raises(UsageError, check=with_code("request-id-reused", request="r1")):
        s.submit(2, 2, request="r1")


def test_nothing_leaves_and_nothing_is_taken_in_while_the_disk_is_full(stage):
    s = stage()
    s.faults.at, s.faults.persistent, s.faults.error = 1, True, errno.ENOSPC
    s.faults.changes.clear()
    assert s.submit()[1] == []
    assert os.strerror(errno.ENOSPC) in s.one.trouble
    with pytest.raises(LaunchError, check=with_code("log-unwritable", pending=False)):
        s.submit()
    s.faults.at, s.faults.persistent = 0, False
    orders = [*s.turn(1.0), *s.turn(6.0)]
    assert kinds(orders)[:1] == [StartOrder]
    assert not s.one.trouble


def test_a_directory_that_others_may_write_to_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o770)
    shared = with_code("directory-not-private", file=str(tmp_path / "shared"), mode="770")
    with pytest.raises(UsageError, check=shared):
        SchedulerLog.open(tmp_path / "shared")


def test_a_second_scheduler_on_the_directory_refuses(stage, tmp_path):
    stage()
    with pytest.raises(LaunchError, check=with_code("scheduler-running", file=str(tmp_path))):
        SchedulerLog.open(tmp_path)


def test_the_clock_goes_on_whatever_the_worlds_clock_does(stage):
    s = stage()
    s.submit()
    s.turn(50.0)
    s.submit()
    s.again(wall=1e9 - 7200.0)
    assert s.one.now == 50.0


@pytest.mark.parametrize("damage", ["cut", "flip", "drop"])
def test_whatever_byte_of_the_log_is_damaged_it_starts_and_keeps_the_other_jobs(stage, damage):
    s = stage()
    (_, (start,)), *_ = [s.submit(least, least) for least in (2, 1, 4)]
    s.say(start)
    s.one.log.close()
    path = s.directory / "journal"
    whole = path.read_bytes()
    for place in range(0, len(whole), 61):
        broken = {
            "cut": whole[:place],
            "flip": whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :],
            "drop": whole[:place] + whole[place + 40 :],
        }[damage]
        path.write_bytes(broken)
        s.begin()
        assert s.one.problems or place == 0 or damage == "cut"
        held = [job.holds for job in s.one.state.jobs.values()]
        assert sum(map(len, held)) == len(frozenset().union(*held))
        s.turn()
        s.one.log.close()
    path.write_bytes(whole)
    s.begin()


def test_jobs_that_are_over_move_to_the_history_and_the_state_stays_small(stage):
    s = stage(limits=QueueLimits(ended=5))
    for _ in range(23):
        _, (start,) = s.submit()
        s.say(start)
        s.say(start, AttemptPhase.ENDED, state="finished", exit_code=0)
        s.left(start, "ada")
    assert len(s.one.state.jobs) < 12
    past = JobHistory(s.directory).documents()
    assert sorted([*past, *s.one.state.jobs]) == list(range(1, 24))
    s.again()
    assert s.submit()[0] == 24


@contextlib.contextmanager
def answering(stage):
    """Yield the service of a scheduler, and the thread that decides."""
    service = SchedulerService(stage.one, lambda: stage.now)
    deciding = threading.Thread(target=service.run, args=(NoJobs(),))
    deciding.start()
    try:
        yield service, deciding
    finally:
        service.stop()
        deciding.join()


OPENED = []
"""Audit events of files, and the threads that caused them; collected while a test asks for them."""
COLLECTS = threading.Event()


def collect(event, _):
    if COLLECTS.is_set() and event in {"open", "os.listdir", "sqlite3.connect"}:
        OPENED.append((threading.get_ident(), event))


def test_the_deciding_thread_opens_no_history(stage):
    s = stage(limits=QueueLimits(ended=2))
    for request in range(1, 9):
        s.one.submit(
            s.now, JobSubmission(1, 1, name="jacobi2d", user="uid:0"), f"uid:0/r{request}"
        )
        s.one.cancel(s.now, request)
        s.turn()
    assert 1 not in s.one.state.jobs
    sys.addaudithook(collect)
    with answering(s) as (service, deciding):
        OPENED.clear()
        COLLECTS.set()
        try:
            assert service.ask(service.job("local.1"))["state"] == "cancelled"
            assert len(service.ask(service.history({}))["jobs"]) == 8
            after = {"submission": {**SUBMITTED, "after": ["local.1"]}}
            with pytest.raises(UsageError, check=with_code("dependency-failed", job="local.1")):
                service.ask(service.submit(after, OPERATOR))
        finally:
            COLLECTS.clear()
        assert [event for thread, event in OPENED if thread == deciding.ident] == []


def test_a_request_id_gives_its_job_as_long_as_the_history_has_it(stage):
    s = stage(limits=QueueLimits(ended=1))
    body = {"request": "r", "submission": SUBMITTED}
    with answering(s) as (service, _):
        first = service.ask(service.submit(body, OPERATOR))["job"]
        for _ in range(4):
            job = service.ask(service.submit({"submission": SUBMITTED}, OPERATOR))["job"]
            service.ask(service.cancel(job, OPERATOR))
        service.ask(service.cancel(first, OPERATOR))
    for number in [*s.one.state.jobs]:
        s.one.report(s.now, JobReport(number, 1, AttemptPhase.ENDED))
        s.one.report(s.now, HostLeft(number, 1, HOSTS[0], LAST))
    s.now += 2 * 86_400.0
    for _ in range(3):
        s.turn(1.0)
    with answering(s) as (service, _):
        assert 1 not in s.one.state.jobs
        again = service.ask(service.submit(body, OPERATOR))
        assert (again["job"], again["state"]) == (first, "cancelled")
        other = {**body, "submission": {**SUBMITTED, "name": "other"}}
        with pytest.raises(UsageError, check=with_code("request-id-reused")):
            service.ask(service.submit(other, OPERATOR))


def test_pages_of_the_history_have_each_ended_job_once(stage):
    s = stage(limits=QueueLimits(ended=2))
    for number in range(1, 12):
        s.one.submit(s.now, JobSubmission(1, 1))
        s.one.cancel(s.now, number)
        s.turn()
    s.submit()
    service = SchedulerService(s.one, lambda: s.now)

    def page(**query):
        call = service.history(query)
        document = call.then(call(s.now))
        jobs = [json.loads(job) if isinstance(job, str) else job for job in document["jobs"]]
        return [job["job"] for job in jobs], document["next"]

    everything = [f"local.{number}" for number in range(1, 12)]
    assert page() == (everything, None)
    assert page(limit="11") == (everything, None)
    assert page(limit="4") == (everything[:4], "local.4")
    assert page(limit="4", after="local.4") == (everything[4:8], "local.8")
    assert page(limit="4", after="local.8") == (everything[8:], None)
    assert page(after="local.99") == ([], None)
    for query in ({"limit": "0"}, {"limit": "1001"}, {"limit": "-1"}, {"odd": "1"}):
        with pytest.raises(UsageError, check=with_code("request-invalid")):
            service.history(query)


class Moves(FirstFit):
    """Moves every job to the last hosts of the list, and counts how often."""

    moves = 0

    def decide(self, cluster):
        yield from super().decide(cluster)
        last = frozenset({cluster.nodes - 1})
        for running in cluster.running.values():
            if not running.changing and running.node_ids != last:
                Moves.moves += 1
                yield Migrate(running.job.id, last)


def test_policy_is_shown_that_a_job_is_still_being_started(stage):
    s = stage(Moves())
    _, (start,) = s.submit(1, 1, JobKind.MALLEABLE)
    for _ in range(3):
        s.one.drain(s.now, "cleo")
        s.one.resume(s.now, "cleo")
        s.turn(1.0)
    assert Moves.moves == 0
    (resize,) = s.say(start, hosts=start.hosts)
    assert (type(resize), resize.hosts) == (ResizeOrder, ("dan",))


def test_a_history_that_cannot_be_written_costs_an_alarm_and_no_job(stage):
    s = stage(limits=QueueLimits(ended=2))

    def ends(count):
        for _ in range(count):
            number = s.one.submit(s.now, JobSubmission(1, 1))
            s.one.cancel(s.now, number)
            s.turn()

    ends(5)
    with contextlib.closing(sqlite3.connect(s.directory / "history.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        ends(10)
        assert "history.db" in s.one.alarms[-1][1]
        assert not s.one.trouble
    known = {*s.one.state.jobs}
    s.again()
    assert {*s.one.state.jobs} == known
    ends(1)
    assert len(s.one.state.jobs) <= 4
    there = {*JobHistory(s.directory).documents(), *s.one.state.jobs}
    assert there == {*range(1, 17)}


def test_a_history_that_still_cannot_be_written_raises_no_second_alarm(stage):
    s = stage(limits=QueueLimits(ended=2))

    def ends(count):
        for _ in range(count):
            number = s.one.submit(s.now, JobSubmission(1, 1))
            s.one.cancel(s.now, number)
            s.turn(600.0)

    def alarms():
        return [text for _, text in s.one.alarms if "history.db" in text]

    ends(5)
    with contextlib.closing(sqlite3.connect(s.directory / "history.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        ends(10)
        assert len(alarms()) == 1
        assert "move a damaged file aside" in alarms()[0]
    ends(5)
    assert len(s.one.state.jobs) <= 5
    with contextlib.closing(sqlite3.connect(s.directory / "history.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        ends(5)
    assert len(alarms()) == 2


def test_a_history_without_its_table_is_none_yet(tmp_path):
    (tmp_path / "history.db").touch()  # as a kill right after its creation leaves it
    history = JobHistory(tmp_path)
    assert (history.requested("r"), history.documents(), history.document(1)) == (None, {}, None)
    assert history.states([1]) == {}


def test_a_damaged_history_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "history.db").write_bytes(b"damaged" * 1000)
    with pytest.raises(LaunchError, check=with_code("history-unreadable"), match="aside"):
        JobHistory(tmp_path).requested("r")


def test_files_of_an_earlier_history_are_read_once(stage):
    s = stage()
    submission = submission_document(JobSubmission(1, 1, name="old"))
    lines = [
        {"job": number, "submitted": 5.0, "submission": submission, "is": {"state": "finished", "ended": 9.0}}
        for number in (1, 2)
    ]  # fmt: skip
    s.submit()
    file = s.directory / "history-000000001.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "damaged")
    whole = file.read_text()
    unread = s.directory / "history-000000002.jsonl"
    unread.mkdir()
    s.again()
    assert not file.exists()
    assert file.with_name(f"{file.name}.imported").read_text() == whole
    assert unread.exists()
    damaged, refused = s.one.problems
    assert f"{file.name}.imported: 7 damaged bytes" in damaged
    assert unread.name in refused
    jobs = map(json.loads, JobHistory(s.directory).documents().values())
    assert [(job["job"], job["name"], job["ended"]) for job in jobs] == [
        ("local.1", "old", 1e9 + 9.0), ("local.2", "old", 1e9 + 9.0),
    ]  # fmt: skip
    assert (s.directory / "history.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("fails", range(1, 5))
def test_where_a_write_fails_while_jobs_move_to_the_history_no_record_is_lost(stage, fails):
    s = stage(limits=QueueLimits(ended=2))
    for number in range(1, 6):
        s.one.submit(s.now, JobSubmission(1, 1))
        s.one.cancel(s.now, number)
    s.one.submit(s.now, JobSubmission(1, 1))
    s.faults.changes.clear()
    s.faults.at = fails
    s.turn()
    assert s.one.trouble
    s.faults.at = 0
    s.turn(1.0)
    assert not s.one.trouble
    known = dict(s.one.state.jobs)
    s.again()
    assert s.one.problems == []
    assert s.one.state.jobs == known
    assert len(known) == 3


SUBMITTED = {"minimum": 1, "maximum": 1, "kind": "rigid", "name": "jacobi2d", "work": {}}
OPERATOR = Principal("uid:0", EVERYTHING)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"work": {"cpu": nan}}, "submission"),
        ({"work": []}, "work"),
        ({"name": "a\nlocal.1  running"}, "name"),
        ({"name": "a\x1b[31m"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "a" * 81}, "name"),
        ({"work": {"require": "NEAR=gpu\x1b[31m"}}, "require"),
        ({"work": {"require": 1}}, "require"),
        ({"work": {"require": "x" * 4097}}, "require"),
        ({"priority": "7"}, "priority"),
        ({"priority": nan}, "priority"),
        ({"priority": True}, "priority"),
        ({"requested": inf}, "requested"),
        ({"minimum": 1.0}, "minimum"),
    ],
)
def test_a_submission_that_log_or_policy_could_not_take_is_refused_in_a_line(values, field):
    assert checked(SUBMITTED).name == "jacobi2d"
    with pytest.raises(UsageError, check=with_code("request-invalid", field=field)):
        checked({**SUBMITTED, **values})


def test_where_there_are_several_schedulers_the_message_says_what_every_command_takes(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("APPLES_SCHEDULER", raising=False)
    for name in ("one", "two"):
        (tmp_path / "apples/schedulers" / name).mkdir(parents=True)
        (tmp_path / "apples/schedulers" / name / "journal").touch()
    with pytest.raises(UsageError, check=with_code("scheduler-ambiguous", known=["one", "two"])):
        found()
    monkeypatch.setenv("APPLES_SCHEDULER", str(tmp_path / "apples/schedulers/two"))
    assert found().name == "two"


def test_a_job_belongs_to_the_scheduler_that_its_id_begins_with(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("APPLES_SCHEDULER", raising=False)
    for name in ("one", "two"):
        (tmp_path / "apples/schedulers" / name).mkdir(parents=True)
        (tmp_path / "apples/schedulers" / name / "journal").touch()
    assert found(job="two.7").name == "two"
    with pytest.raises(UsageError, check=with_code("scheduler-ambiguous", known=["one", "two"])):
        found(job="three.7")


def test_a_host_has_one_scheduler_until_that_ends(tmp_path):
    first = HostClaims(tmp_path, tmp_path / "one", ["ada", "../bob"])
    busy = with_code("host-busy", host="../bob", scheduler=str(tmp_path / "one"))
    with pytest.raises(LaunchError, check=busy):
        HostClaims(tmp_path, tmp_path / "two", ["cleo", "../bob"])
    HostClaims(tmp_path, tmp_path / "three", ["cleo"]).close()  # what was refused holds nothing
    first.close()
    HostClaims(tmp_path, tmp_path / "two", ["../bob"]).close()
    assert {one.name for one in tmp_path.iterdir()} == {".hosts"}


def test_long_names_that_differ_at_their_end_alone_are_two_claims(tmp_path):
    long = "/" + "d" * 250
    first = HostClaims(tmp_path, tmp_path / "one", [f"{long}/a"])
    second = HostClaims(tmp_path, tmp_path / "two", [f"{long}/b"])
    with pytest.raises(LaunchError, check=with_code("host-busy", host=f"{long}/a")):
        HostClaims(tmp_path, tmp_path / "three", [f"{long}/a"])
    first.close()
    second.close()


def test_whoever_asks_when_the_disk_fails_is_told_that_it_may_be_done_yet(stage):
    s = stage()
    service = SchedulerService(s.one, lambda: s.now)
    deciding = threading.Thread(target=service.run, args=(NoJobs(),))
    deciding.start()
    try:
        s.faults.at, s.faults.persistent, s.faults.error = 1, True, errno.ENOSPC
        s.faults.changes.clear()
        with pytest.raises(LaunchError, check=with_code("log-unwritable", pending=True)):
            service.ask(service.submit({"submission": SUBMITTED}, OPERATOR))
        s.faults.at, s.faults.persistent = 0, False
        s.now += 1.0
        assert [one["job"] for one in service.ask(service.queue())["jobs"]] == ["local.1"]
    finally:
        service.stop()
        deciding.join()


def test_while_the_disk_is_full_what_was_recorded_last_is_shown_and_said_to_be(stage):
    s = stage()
    s.submit(2, 2)
    service = SchedulerService(s.one, lambda: s.now)
    deciding = threading.Thread(target=service.run, args=(NoJobs(),))
    deciding.start()
    try:
        s.faults.at, s.faults.persistent, s.faults.error = 1, True, errno.ENOSPC
        s.faults.changes.clear()
        with pytest.raises(LaunchError, check=with_code("log-unwritable", pending=True)):
            service.ask(service.submit({"submission": SUBMITTED}, OPERATOR))
        shown = service.ask(service.queue())
        assert [one["job"] for one in shown["jobs"]] == ["local.1"]
        assert os.strerror(errno.ENOSPC) in shown["trouble"]
        assert os.strerror(errno.ENOSPC) in queue_text(shown)
        assert service.ask(service.job("local.1"))["state"] == "starting"
        assert service.ask(service.history({}))["jobs"] == []
        with pytest.raises(UsageError, check=with_code("job-unknown", job="local.2")):
            service.ask(service.why("local.2"))
    finally:
        service.stop()
        deciding.join()


def test_the_history_has_the_hosts_that_a_job_had_in_the_mean_over_its_time(stage):
    s = stage(Equipartition())
    one, (first,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(first)
    s.now += 30.0
    _, orders = s.submit(1, 4, JobKind.MALLEABLE)
    (shrink,) = (order for order in orders if isinstance(order, ResizeOrder))
    s.say(shrink, epoch=shrink.epoch, hosts=shrink.hosts)
    s.left(shrink, *set(HOSTS) - set(shrink.hosts), epoch=shrink.epoch)
    s.again()
    s.now += 90.0
    s.say(first, AttemptPhase.ENDED, state="finished", exit_code=0)
    s.left(first, *HOSTS)
    (over,) = history_document(s.one, "local")["jobs"]
    assert (over["job"], over["mean_hosts"]) == (f"local.{one}", pytest.approx(2.5))
    line = [*swf_lines(history_document(s.one, "local"))][-1].split()
    assert (line[4], line[7], line[8]) == ("2", "4", "100")


def test_a_resize_that_is_asked_for_is_ordered_and_the_policy_goes_on_from_there(stage):
    s = stage()
    one, (start,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(start)
    s.one.resize(s.now, one, ["cleo", "ada"])
    (order,) = s.turn()
    assert (type(order), order.hosts) == (ResizeOrder, ("ada", "cleo"))
    with pytest.raises(
        LaunchError, check=with_code("job-busy", job=f"local.{one}", state="resizing")
    ):
        s.one.resize(s.now, one, ["ada"])
    second, orders = s.submit(2, 2)
    assert orders == []
    s.say(order, epoch=order.epoch, hosts=order.hosts)
    (next_start,) = s.left(order, "bob", "dan", epoch=order.epoch)
    assert (next_start.job, next_start.hosts) == (second, ("bob", "dan"))
    s.say(next_start)
    s.one.resize(s.now, one, ["ada", "cleo"])
    assert s.turn() == []
    with pytest.raises(LaunchError, check=with_code("host-busy", host="bob", state="held")):
        s.one.resize(s.now, one, ["ada", "bob"])
    with pytest.raises(
        UsageError, check=with_code("job-not-resizable", job=f"local.{second}", kind="rigid")
    ):
        s.one.resize(s.now, second, ["bob"])
    with pytest.raises(UsageError, check=with_code("host-unknown", host="zoe")):
        s.one.resize(s.now, one, ["zoe"])


def test_a_policy_that_resizes_owns_the_sizes(stage):
    s = stage(Equipartition())
    one, (start,) = s.submit(1, 2, JobKind.MALLEABLE)
    s.say(start)
    fixed = with_code("policy-unsuitable", policy="Equipartition", field="hosts", bound=2)
    with pytest.raises(UsageError, check=fixed):
        s.one.resize(s.now, one, ["ada"])
    s.one.resize(s.now, one, ["ada", "dan"])
    assert [order.hosts for order in s.turn()] == [("ada", "dan")]


# ---------------------------------------------------------------------- one after the other
def after(*numbers):
    return JobSubmission(1, 1, requested=10.0, after=numbers)


def test_a_job_waits_for_those_that_it_comes_after_whatever_is_free_and_across_a_restart(stage):
    s = stage()
    one, (first,) = s.submit(1, 1)
    two, (second,) = s.submit(1, 1)
    three = s.one.submit(s.now, after(one, two))
    assert s.turn() == []
    shown = job_document(s.one, "local", s.one.job(three))
    assert shown["state"] == "held"
    assert in_order(shown["reason"], "local.1", "local.2")
    assert shown["after"] == ["local.1", "local.2"]
    for order in (first, second):
        s.say(order)
    s.say(first, AttemptPhase.ENDED, state="finished", exit_code=0)
    assert s.left(first, "ada") == []
    s.again()
    s.turn()
    assert s.one.comes_after(s.one.job(three)) == [two]
    s.say(second, AttemptPhase.RUNNING)
    s.say(second, AttemptPhase.ENDED, state="finished", exit_code=0)
    orders = [*s.left(second, "bob"), *s.turn()]
    assert [order.job for order in orders if isinstance(order, StartOrder)] == [three]


def test_a_job_is_cancelled_where_what_it_comes_after_fails_and_so_on(stage):
    s = stage()
    one, (first,) = s.submit(1, 1)
    two = s.one.submit(s.now, after(one))
    three = s.one.submit(s.now, after(two))
    s.turn()
    s.say(first, AttemptPhase.ENDED, state="failed", exit_code=5)
    s.left(first, "ada")
    assert [s.state(number) for number in (two, three)] == [LiveJobState.CANCELLED] * 2
    assert in_order(s.one.job(two).reason, "local.1", "failed")
    with pytest.raises(
        UsageError, check=with_code("dependency-failed", job="local.1", state="failed")
    ):
        s.one.submit(s.now, after(one))
    with pytest.raises(UsageError, check=with_code("job-unknown", job="local.9")):
        s.one.submit(s.now, after(9))


def test_a_job_that_comes_after_another_can_be_cancelled_before(stage):
    s = stage()
    one, (first,) = s.submit(1, 1)
    two = s.one.submit(s.now, after(one))
    s.one.cancel(s.now, two)
    assert s.state(two) is LiveJobState.CANCELLED
    s.say(first, AttemptPhase.ENDED, state="finished", exit_code=0)
    assert s.left(first, "ada") == []


@pytest.mark.parametrize("wrong", ["local.1", ["local.x"], [1], ["lab.1"], ["local.1"] * 21])
def test_what_is_no_job_to_come_after_is_refused(stage, wrong):
    service = SchedulerService(stage().one, lambda: 0.0)
    with pytest.raises(UsageError):
        service.submit({"submission": {**SUBMITTED, "after": wrong}}, OPERATOR)


@pytest.mark.parametrize(("columns", "lines"), [(40, 8), (80, 24), (140, 50), (1, 1)])
def test_a_queue_fits_into_a_terminal(stage, columns, lines):
    s = stage()
    for _ in range(30):
        s.submit(3, 3)
    document = queue_document(s.one, "local")
    shown = watched_text(document, columns, lines).splitlines()
    assert len(shown) <= max(1, lines - 1)
    assert max(map(len, shown)) <= max(columns, 2)
    if columns > 30:
        assert "local: " in shown[0]
        assert any("local.1 " in line for line in shown)


# ---------------------------------------------------------------------- what is foretold
PLANNER = """
import json, os, sys, time
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[-1]))
while True:
    asked = json.loads(connection.recv_bytes())
    if asked["ask"] == "die":
        os._exit(1)
    if asked["ask"] == "refuse":
        failure = {"code": "policy-unknown", "exit_code": 2, "message": "-", "fields": {"value": "x"}}
        connection.send_bytes(json.dumps({"failure": failure}).encode())
        continue
    if asked["ask"] == "late":
        while not os.path.exists(asked["gate"]):
            time.sleep(0.01)
    starts = {str(job[0]): [1.0, 2.0, 3.0] for job in asked["snapshot"]["jobs"] if not job[6]}
    answer = {"ask": asked["ask"], "pid": os.getpid(), "draws": 100, "starts": starts, "ends": {},
              "changes": {"hosts": 1}, "job": asked.get("job")}
    connection.send_bytes(json.dumps(answer).encode())
"""


@pytest.fixture
def planner():
    one = PlannerClient([sys.executable, "-c", PLANNER])
    yield one
    one.close()


def test_a_planner_that_dies_is_started_again_and_one_that_refuses_goes_on(planner):
    empty = QueueSnapshot(4, ())
    first = planner.ask("future", empty, 30.0)["pid"]
    with pytest.raises(UsageError, check=with_code("policy-unknown", value="x")):
        planner.ask("refuse", empty, 30.0)
    assert planner.ask("future", empty, 30.0)["pid"] == first
    assert planner.ask("die", empty, 30.0) is None
    assert planner.ask("future", empty, 30.0)["pid"] != first


def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_another_question(
    planner, tmp_path
):
    empty, gate = QueueSnapshot(4, ()), tmp_path / "gate"
    assert planner.ask("future", empty, 30.0)["ask"] == "future"
    assert planner.ask("late", empty, 0.1, gate=str(gate)) is None
    assert planner.ask("changes", empty, 0.1) is None  # it is still at the other
    assert planner.late is None
    gate.touch()
    assert until(lambda: planner.ask("changes", empty, 30.0), 60)["ask"] == "changes"
    assert planner.late[1]["ask"] == "late"


def test_a_planner_that_hangs_is_ended_although_nobody_asks_again(planner, tmp_path, monkeypatch):
    empty, never = QueueSnapshot(4, ()), str(tmp_path / "never")
    first = planner.ask("future", empty, 30.0)["pid"]
    assert planner.ask("late", empty, 0.1, gate=never) is None
    planner.rest()
    assert Path(f"/proc/{first}").exists()
    monkeypatch.setattr("time.monotonic", lambda: monotonic() + 121.0)
    for _ in range(3):
        planner.rest()
    assert until(lambda: not Path(f"/proc/{first}").exists(), 30)
    assert planner.ask("future", empty, 30.0)["pid"] != first


def test_where_there_is_no_answer_in_time_the_last_one_stands_until_it_is_old(stage):
    class Slow:
        late = None

        def ask(self, what, snapshot, *more, job=None):
            pass

    s, planner = stage(), Slow()
    s.submit(4, 4)
    s.submit(1, 1)
    service = SchedulerService(s.one, lambda: s.now, planner)

    def start():
        look = service.queue()
        return look.then(look(s.now))["jobs"][1]["start"]

    assert start() is None
    planner.late = snapshot_of(s.one), {"draws": 100, "starts": {"2": [1.0, 2.0, 3.0]}, "ends": {}}
    said = start()
    assert said is not None
    s.turn(20.0)
    assert start() == said
    s.turn(20.0)
    assert start() is None


def test_a_planner_that_cannot_be_started_costs_the_answer_its_future_only(stage):
    s = stage()
    s.submit(4, 4)
    number, _ = s.submit(2, 2)
    service = SchedulerService(s.one, lambda: s.now, PlannerClient(["/nonexistent/planner"]))
    look = service.why(f"local.{number}")
    found = look.then(look(s.now))
    assert (found["start"], found["start_unknown"]) == (None, "its start is being computed")
    assert found["start_unknown"] in why_text(found)
    assert found["blocking"] == ["local.1"]


def test_file_of_working_folder_takes_place_of_no_module_of_planner(stage, tmp_path, monkeypatch):
    for name in ("random", "numbers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    s = stage()
    s.submit(4, 4)
    s.submit(2, 2)
    client = PlannerClient(planner_command("easy", {}))
    try:
        assert client.ask("future", snapshot_of(s.one), 60.0) is not None
    finally:
        client.close()


def test_queue_and_why_say_when_a_job_starts_by_the_clock_of_the_world(stage, planner):
    s = stage()
    one, (start,) = s.submit(4, 4)
    s.say(start)
    number, _ = s.submit(2, 2)
    service = SchedulerService(s.one, lambda: s.now, planner)
    look = service.why(f"local.{number}")
    found = look.then(look(s.now))
    now = found["time"]
    assert found["start"] == [now + 1.0, now + 2.0, now + 3.0]
    assert found["changes"] == {"hosts": 1}
    text = why_text(found)
    assert in_order(text, "2.00 s", "1.00 s", "3.00 s")
    assert re.search(r"\b1 host\b", text)  # with this many it would start now
    look = service.queue()
    found = look.then(look(s.now))
    assert [job["start"] for job in found["jobs"]] == [None, [now + 1.0, now + 2.0, now + 3.0]]
    assert "snapshot" not in found
    assert service.why(f"local.{one}")(s.now)["position"] is None


def test_a_snapshot_has_what_runs_what_waits_and_what_was_and_can_be_sent(stage):
    s = stage(Equipartition())
    one, (first,) = s.submit(1, 2, JobKind.MALLEABLE)
    s.say(first)
    s.now += 50.0
    s.say(first, AttemptPhase.ENDED, state="finished", exit_code=0)
    s.left(first, *HOSTS[:2])
    two, (second,) = s.submit(1, 4, JobKind.MALLEABLE)
    s.say(second)
    s.one.drain(s.now, "dan")
    s.now += 10.0
    three, _ = s.submit(4, 4)
    found = snapshot_of(s.one)
    assert found.nodes == 3
    running, waiting = found.jobs
    assert (running.number, running.nodes, running.malleable) == (two, 3, True)
    assert running.done == pytest.approx(10.0)
    assert (waiting.number, waiting.nodes, waiting.maximum) == (three, 0, 4)
    over = next(past for past in found.past if past.job.number == one)
    assert (over.ratio, over.nodes) == (pytest.approx(0.5), 2)
    assert [past.ratio for past in found.past][1:] == [None, None]
    assert QueueSnapshot.parse(json.loads(json.dumps(found.document()))) == found


def test_behind_a_long_queue_the_past_has_the_jobs_that_are_over(stage):
    s = stage()
    first, (order,) = s.submit(4, 4)
    s.say(order)
    s.now += 50.0
    s.say(order, AttemptPhase.ENDED, state="finished", exit_code=0)
    s.left(order, *HOSTS)
    for _ in range(1001):
        s.one.submit(s.now, JobSubmission(4, 4, JobKind.RIGID, 100.0))
    past = snapshot_of(s.one).past
    assert (past[0].job.number, past[0].ratio) == (first, pytest.approx(0.5))
    assert len(past) == 1001


class InProcess:
    """The planner of a policy in this process, asked through JSON."""

    late = None

    def __init__(self, policy="easy"):
        self.planner = QueuePlanner(policy, {})

    def ask(self, what, snapshot, seconds=2.0, **more):
        question = {"ask": what, "snapshot": snapshot.document(), "seconds": seconds, **more}
        return json.loads(json.dumps(self.planner.answer(json.loads(json.dumps(question)))))

    def close(self):
        pass


def test_start_and_finish_are_predicted_before_a_job_is_submitted(stage):
    s = stage(Easy())
    service = SchedulerService(s.one, lambda: s.now, InProcess())

    def predict(**changes):
        call = service.predict({"submission": {**SUBMITTED, **changes}}, OPERATOR)
        return call.then(call.call(s.now, call.look_up()))

    _, (order,) = s.submit(4, 4)
    s.say(order)
    s.turn(20.0)
    before = s.one.state.last, len(s.one.state.jobs)
    asked = {"minimum": 2, "maximum": 2, "requested": 50.0, "name": "sweep"}
    found = predict(**asked)
    begin = found["time"]
    assert (found["basis"], found["requested"], found["estimated_by"]) == (
        "estimates",
        50.0,
        "user",
    )
    assert [at - begin for at in found["start"]] == pytest.approx([80.0] * 3, abs=0.1)
    assert [at - begin for at in found["finish"]] == pytest.approx([130.0] * 3, abs=0.1)
    assert (s.one.state.last, len(s.one.state.jobs)) == before
    with pytest.raises(UsageError, check=with_code("too-many-hosts", value=5)):
        predict(minimum=5, maximum=5)
    with pytest.raises(UsageError, check=with_code("estimate-missing", name="sweep", value=2)):
        predict(**asked, modelled=True)
    submission = service.submit({"submission": {**SUBMITTED, **asked}}, OPERATOR)
    submission.call(s.now, submission.look_up())
    again = predict(**{**asked, "requested": 3600.0}, modelled=True)
    assert (again["requested"], again["estimated_by"]) == (50.0, "user")
    assert [at - begin for at in again["start"]] == pytest.approx([80.0] * 3, abs=0.1)


def test_nothing_is_predicted_behind_more_jobs_than_a_snapshot_has(stage):
    s = stage(Easy())
    service = SchedulerService(s.one, lambda: s.now, InProcess())
    s.submit(4, 4)
    for _ in range(MAX_QUEUED + 1):
        s.one.submit(s.now, JobSubmission(1, 1, requested=100.0))
    call = service.predict({"submission": SUBMITTED}, OPERATOR)
    unavailable = with_code("prediction-unavailable", value=MAX_QUEUED + 1, bound=MAX_QUEUED)
    with pytest.raises(LaunchError, check=unavailable):
        call.call(s.now, call.look_up())
    s.one.cancel(s.now, s.one.state.last)
    assert call.call(s.now, call.look_up())["estimated_by"] == "user"


def test_prediction_after_a_job_that_moves_to_the_history_meanwhile(stage):
    s = stage(Easy(), limits=QueueLimits(ended=2))
    service = SchedulerService(s.one, lambda: s.now, InProcess())
    _, (order,) = s.submit()
    body = {"submission": {**SUBMITTED, "after": ["local.1"]}}
    call = service.predict(body, OPERATOR)
    past = call.look_up()
    s.say(order, AttemptPhase.ENDED, state="finished", exit_code=0)
    s.left(order, *order.hosts)
    for number in range(2, 9):
        s.one.submit(s.now, JobSubmission(1, 1))
        s.one.cancel(s.now, number)
        s.turn()
    assert 1 not in s.one.state.jobs
    assert call.call(s.now, past) is None  # the history is read again
    assert call.call(s.now, call.look_up())["estimated_by"] == "user"


def test_where_jobs_share_hosts_no_start_is_predicted(stage):
    s = stage()
    service = SchedulerService(s.one, lambda: s.now)
    call = service.predict({"submission": SUBMITTED}, OPERATOR)
    with pytest.raises(UsageError, check=with_code("planner-missing")):
        call.call(s.now, call.look_up())


@pytest.mark.parametrize(
    "body",
    [
        {"policy": 1}, {"hosts_more": -1}, {"hosts_more": True}, {"minimum": [1]}, {"odd": 1},
        {"options": {"a": 1}}, {"minimum": {"local.1": "2"}}, {"hosts_less": 1.5},
    ],
)  # fmt: skip
def test_a_what_if_that_is_none_is_refused(stage, body):
    service = SchedulerService(stage().one, lambda: 0.0)
    with pytest.raises(UsageError, check=with_code("request-invalid")):
        service.what_if(body)


# --------------------------------------------------------------------- the simulator's decisions
POLICIES = (
    FirstComeFirstServed(), FirstFit(), ShortestJobFirst(), Easy(), Easy(order="shortest"), Conservative(),
    Equipartition(), SHARING,
)  # fmt: skip


def drawn_log(seed, cores=1):
    """Return a log full of ties whose malleable jobs can have as many whole nodes as they asked for."""
    rng = np.random.default_rng((18, seed))
    nodes, count = int(rng.integers(2, 9)), int(rng.integers(1, 40))
    submit = np.sort(rng.integers(0, 60, count).astype(float))
    run = rng.integers(1, 20, count).astype(float)
    width = rng.integers(1, nodes + 1, count) * cores
    log = rigid(submit, run, width, run + rng.choice([0.0, 1.0, 7.0, 25.0], count))
    part = float(rng.choice([0.0, 0.5, 1.0]))
    log = mark_malleable(log, part, seed, minimum=0.3, maximum=1.0, most=nodes * cores)
    return log, nodes


class Replayed:
    """A live scheduler that is fed the events of a simulated run, with hosts that do all at once."""

    def __init__(self, directory, engine, policy, nodes, cpus=0):
        self.numbers = {job.id: k + 1 for k, job in enumerate(engine.jobs)}
        hosts = tuple(f"h{k}" for k in range(nodes))
        timeouts = Timeouts(batch_window=0.0, min_pass_interval=0.0, check_interval=inf)
        self.stage = Stage(directory, policy, hosts, timeouts=timeouts, cpus=cpus)
        self.each = cpus or 1
        self.decided = []

    def obey(self, orders):
        stage = self.stage
        while orders:
            order, *orders = orders
            if isinstance(order, StartOrder):
                self.decided.append((stage.now, "start", order.job, len(order.hosts)))
                orders += stage.say(order)
            elif isinstance(order, ResizeOrder):
                before = stage.one.state.jobs[order.job].hosts
                self.decided.append((stage.now, "resize", order.job, len(order.hosts)))
                orders += stage.say(order, epoch=order.epoch, hosts=order.hosts)
                gone = [host for host in before if host not in order.hosts]
                orders += stage.left(order, *gone, epoch=order.epoch)

    def submit(self, job):
        self.stage.one.submit(
            self.stage.now,
            JobSubmission(
                -(-job.minimum // self.each), job.maximum // self.each, job.kind, job.requested
            ),
        )

    def restart(self):
        """Start another scheduler on the log, and have every job say where it is; return its orders."""
        stage = self.stage
        stage.again(1e9)
        for order in stage.one.turn():
            stage.one.report(stage.now, JobReport(order.job, order.attempt, AttemptPhase.RUNNING))
        return stage.turn()

    def end(self, number):
        job = self.stage.one.state.jobs[number]
        one = self.stage.one
        one.report(
            self.stage.now,
            JobReport(number, job.attempt, AttemptPhase.ENDED, state="finished", exit_code=0),
        )
        for host in job.hosts:
            one.report(self.stage.now, HostLeft(number, job.attempt, host, LAST))


@pytest.mark.parametrize("seed", range(48))
def test_fed_with_the_events_of_a_simulated_run_it_decides_the_same(tmp_path, seed):
    policy = POLICIES[seed % len(POLICIES)]
    cpus = 4 if policy is SHARING else 0
    log, nodes = drawn_log(seed, cpus or 1)
    engine = EventEngine(log, policy, SimulationConfig(nodes, cpus or 1), record=True)
    engine.run()
    live = Replayed(tmp_path, engine, policy, nodes, cpus)
    replay(engine, live)
    widths = {}
    for _, _, number, width in live.decided:
        widths.setdefault(number, []).append(width)
    simulated = {}
    for _, k, cores in engine.changes if not cpus else ():
        if cores:
            simulated.setdefault(k + 1, []).append(cores)
    if cpus:  # whoever shares has fewer CPUs of its hosts, and its hosts are as many as before
        simulated = {k + 1: [job.processors // cpus] for k, job in enumerate(engine.jobs)}
    assert widths == simulated
    live.stage.one.log.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_scheduler_that_is_restarted_at_every_event_has_jobs_share_as_the_simulator(
    tmp_path, seed
):
    log, nodes = drawn_log(seed + 100, 4)
    engine = EventEngine(log, SHARING, SimulationConfig(nodes, 4), record=True)
    engine.run()
    live = Replayed(tmp_path, engine, SHARING, nodes, 4)
    replay(engine, live, restarts=True)
    live.stage.one.log.close()


def replay(engine, live, restarts=False):
    """Tell a live scheduler what happened in a simulated run, and check that its starts are the same."""
    times = sorted({*(job.submit for job in engine.jobs), *engine.end})
    for time in times:
        while (wake := live.stage.now + live.stage.one.next_time()) < time:
            live.stage.now = wake
            live.obey(live.stage.turn())
        live.stage.now = time
        for k, job in enumerate(engine.jobs):
            if job.submit == time:
                live.submit(job)
            if engine.end[k] == time:
                live.end(k + 1)
        live.obey(live.stage.turn())
        if restarts:
            live.obey(live.restart())
    starts = {number: time for time, what, number, _ in live.decided if what == "start"}
    assert [starts[k + 1] for k in range(len(engine.jobs))] == engine.start
    guests = [live.stage.one.job(k + 1).share < 1 for k in range(len(engine.jobs))]
    assert guests == engine.guest


def on_both(stage, seconds):
    """Submit a malleable job of two hosts; return its number and the orders."""
    submission = JobSubmission(2, 2, JobKind.MALLEABLE, seconds)
    number = stage.one.submit(stage.now, submission)
    return number, stage.turn()


def test_a_master_with_its_workers_that_would_have_to_share_hosts_is_refused(tmp_path):
    s = Stage(tmp_path, SHARING, ("ada", "bob"), cpus=4)
    for kind in JobKind:
        one = JobSubmission(1, 1, kind, 100.0, work={"units": "/squares.toml"})
        if kind is JobKind.MALLEABLE:
            with pytest.raises(UsageError, check=with_code("policy-unsuitable", field="kind")):
                s.one.submit(s.now, one)
        else:
            s.one.submit(s.now, one)


def test_a_guest_comes_to_its_mates_hosts_and_not_while_one_of_them_gets_no_jobs(tmp_path):
    s = Stage(tmp_path, SHARING, ("ada", "bob"), cpus=4)
    mate, (start,) = on_both(s, 1000.0)
    assert start.cpus == 4
    s.say(start)
    s.one.drain(s.now, "bob")
    guest, orders = on_both(s, 10.0)
    assert (orders, s.one.job(guest).waits) == ([], True)
    s.one.resume(s.now, "bob")
    (come,) = s.turn()
    assert (come.job, set(come.hosts)) == (guest, {"ada", "bob"})
    assert (s.one.job(guest).mates, s.one.job(guest).share) == ((mate,), 0.5)
    with pytest.raises(
        LaunchError, check=with_code("job-busy", job=f"local.{mate}", hosts=["ada", "bob"])
    ):
        s.one.resize(s.now, mate, ["bob", "ada"])
    s.one.log.close()


def test_a_start_whose_host_is_lost_before_it_has_its_cpus_waits_again_and_has_not_failed(
    tmp_path,
):
    s = Stage(tmp_path, SHARING, ("ada", "bob", "cleo"), cpus=4)
    number, (start,) = on_both(s, 100.0)
    lost = start.hosts[1]
    socket = "no topology daemon at /run/b.sock: Connection refused"
    s.one.report(s.now, HostAnswer(lost, socket))
    (end,) = s.turn(s.timeouts.check_interval)
    assert (type(end), end.job, s.state(number)) == (EndOrder, number, LiveJobState.ENDING)
    s.say(start, AttemptPhase.ENDED, state="cancelled")
    (again,) = s.left(start, *start.hosts)
    assert (again.job, again.attempt, lost in again.hosts) == (number, 2, False)
    s.one.report(s.now, HostAnswer(again.hosts[0], socket))
    s.say(again, AttemptPhase.ENDED, state="failed", exit_code=4, reason="it has no CPUs")
    s.left(again, *again.hosts)
    assert (s.state(number), s.one.job(number).restarts) == (LiveJobState.QUEUED, 0)
    said = why_document(s.one, "local", s.one.job(number))["reason"]
    assert in_order(said, lost, socket, "1")
    s.one.report(s.now, HostAnswer(lost))
    (third,) = s.turn(s.timeouts.check_interval)
    s.say(third)
    s.one.report(s.now, HostAnswer(lost, socket))
    assert all(isinstance(order, AskOrder) for order in s.turn(60.0))
    assert s.state(number) is LiveJobState.RUNNING  # a daemon that is down ends no job
    s.again()
    s.one.log.close()


def test_what_is_being_started_on_a_host_that_is_lost_at_a_restart_is_asked_before_it_is_ended(
    tmp_path,
):
    s = Stage(tmp_path, SHARING, ("ada", "bob"), cpus=4)
    number, (start,) = on_both(s, 100.0)
    s.lost = {"bob": "no topology daemon"}
    s.again()
    assert kinds(s.turn()) == [AskOrder]
    assert EndOrder not in kinds(s.turn(60.0))
    s.say(start)
    assert s.state(number) is LiveJobState.RUNNING
    s.again()
    s.one.log.close()


def test_a_host_that_two_jobs_have_not_left_is_quarantined_for_one_after_the_other(tmp_path):
    s = Stage(tmp_path, SHARING, ("ada", "bob"), cpus=4)
    starts = []
    for seconds in (1000.0, 10.0):
        _, orders = on_both(s, seconds)
        starts += orders
        s.say(orders[0])
    for one in starts:
        ended = JobReport(one.job, one.attempt, AttemptPhase.ENDED, state="finished", exit_code=0)
        s.one.report(s.now, ended)
    for _ in range(3):
        s.turn(20.0)
    first = s.one.state.quarantined["ada"].job
    second = next(one for one in starts if one.job != first)
    assert s.one.job(second.job).holds == {"ada", "bob"}
    for one in sorted(starts, key=lambda one: one.job != first):
        assert not s.one.state.is_free("ada")
        s.left(one, "ada", "bob")
        s.turn(20.0)
    assert all(map(s.one.state.is_free, ("ada", "bob")))
    s.one.log.close()


def test_an_order_to_end_a_job_whose_hosts_are_quarantined_for_another_is_repeated_seldom(
    tmp_path,
):
    s = Stage(tmp_path, SHARING, ("ada", "bob"), cpus=4)
    starts = []
    for seconds in (1000.0, 10.0):
        _, orders = on_both(s, seconds)
        starts += orders
        s.say(orders[0])
    for one in starts:
        s.one.report(s.now, JobReport(one.job, one.attempt, AttemptPhase.ENDED, state="finished"))
    until(lambda: s.turn(1.0) is not None and s.one.state.quarantined)
    other = next(one.job for one in starts if one.job != s.one.state.quarantined["ada"].job)
    s.turn(30.0)
    ticks = round(30.0 / s.timeouts.check_interval)
    orders = [one for _ in range(ticks) for one in s.turn(s.timeouts.check_interval)]
    about = [one for one in orders if isinstance(one, EndOrder) and one.job == other]
    assert len(about) == 30.0 / s.timeouts.resend_interval
    s.one.log.close()


# ------------------------------------------------------------------------------- the simulation
def test_against_the_adversary_no_promise_is_broken():
    assert first_broken(range(8)) is None


@pytest.mark.more
def test_against_the_adversary_jobs_that_share_hosts_break_no_promise():
    assert first_broken(range(6), "sd") is None


def test_whatever_the_scheduler_raises_is_a_broken_promise_with_its_seed_and_event(monkeypatch):
    def broken(*_):
        raise TypeError("planted")

    monkeypatch.setattr(LiveScheduler, "_hear_running", broken)
    _, said = first_broken([3])
    assert re.fullmatch(r"seed 3, event \d+ at [\d.]+ s: TypeError: planted", said)


@pytest.mark.more
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    plant(fault, monkeypatch.setattr)
    seeds = (RARE.get(fault, 0), *range(200))
    assert first_broken(seeds, "sd" * (fault in FAULTS_OF_SHARING)) is not None

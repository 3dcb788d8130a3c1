"""A user's policy in a live scheduler: whatever it does costs its passes, and the deciding thread never waits."""

import os
import threading
import time
from pathlib import Path

import hostile
import pytest
from coding import with_code

from apples.errors import UsageError
from apples.scheduling import (
    ClusterLedger,
    Driver,
    GuardedPolicy,
    Job,
    SchedulerBackend,
)

KINDS = [
    kind
    for kind in vars(hostile).values()
    if isinstance(kind, type) and issubclass(kind, hostile.Policy) and kind is not hostile.Policy
]
#: What each kind is counted as where it is not `raises`; None: it decides nothing, or what the ledger allows.
COUNTED = {
    "Interrupts": "exits", "Leaves": "exits", "LeavesAtOnce": "exits", "Crashes": "exits",
    "ClosesEverything": "exits", "KillsItself": "exits", "KillsItsParent": "exits",
    "BecomesAnother": "exits", "Loops": "loops", "LoopsWhateverComes": "loops",
    "Sleeps": "loops", "LoopsInC": "loops", "StartsPrograms": "loops", "AsksTheShell": "loops",
    "WritesToEverything": "answers nonsense",
    "EndsNever": "too many", "AMillion": "too many", "EatsMemory": "memory",
    "EatsMemoryInBites": "memory", "NoDecision": "no decision",
    "NotDecisions": "no decision", "HalfANode": "no decision", "NoNumber": "no decision",
    "NumberOfAnotherKind": "no decision", "JobOfAnotherKind": "no decision",
    "HoldsWithoutReason": "no decision", "ReasonsAtLength": "no decision",
    "RejectsWithAPicture": "no decision", "UnknownJob": "refused", "OthersJob": "refused",
    "NegativeNodes": "refused", "TooMany": "refused", "Twice": "refused",
    "NodesThatAreNot": "refused", "Past": "refused", "WakesInThePast": "refused",
    "RequeuesWhatDoesNotRun": "refused", "ChangesAJobByForce": "refused", "Idle": None,
    "PromisesOnly": None, "HoldsAll": None, "Forks": None,
}  # fmt: skip
DECIDES_SECONDS = 0.05
"""Bound of one pass in the deciding thread; the child has a second and more."""


class Recorder(SchedulerBackend):
    """Carries nothing out; keeps the failures and the passes that were asked for."""

    def __init__(self):
        self.failures, self.refused, self.wakes = [], [], []

    def start_job(self, running):
        pass

    migrate_job = update_share = requeue_job = start_job

    def resize_job(self, running, nodes_before):
        pass

    def reject_job(self, job, reason):
        pass

    def wake_at(self, time):
        self.wakes.append(time)

    def policy_failed(self, failure):
        self.failures.append(failure)

    def refuse(self, refused):
        self.refused.append(refused)


class Live:
    """A driver on the clock of the wall, as the live scheduler runs it: a pass whenever there is an answer."""

    def __init__(self, policy, nodes=4):
        self.policy, self.answered = policy, threading.Event()
        policy.on_answer = self.answered.set
        self.ledger, self.backend = ClusterLedger(nodes), Recorder()
        self.driver = Driver(policy, self.ledger, lambda: 0.0, self.backend)
        self.longest = 0.0

    def run_pass(self):
        began = time.thread_time()
        self.driver.run_pass()
        self.longest = max(self.longest, time.thread_time() - began)

    def decide(self, seconds=60.0):
        """Run a pass, and another one when the policy has answered."""
        self.answered.clear()
        self.run_pass()
        if not self.policy.disabled:
            assert self.answered.wait(seconds)
            self.run_pass()


def queue_of(live, widths=(3, 2, 4, 1)):
    for number, width in enumerate(widths, 1):
        live.driver.submit(Job(number, 0.0, width, 5.0, width, width))


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def written(tmp_path, body, name="Mine"):
    """Return the name of a policy of such a `decide`."""
    path = tmp_path / "mine.py"
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    path.write_text(
        "import os, time\nfrom apples.scheduling import *\n\n\n"
        f"class {name}(Easy):\n    def decide(self, cluster):\n{lines}\n"
    )
    return f"{path}:{name}"


def test_there_are_fifty_kinds_of_hostile_policies():
    assert len(KINDS) >= 50


@pytest.mark.more
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_hostile_policy_costs_its_pass_and_is_named_with_its_line(kind, capfd):
    before = children()
    counted = COUNTED.get(kind.__name__, "raises")
    # What has no end is stopped soon; the others have as long as they need on a loaded machine.
    seconds = 0.3 if counted == "loops" else 20.0
    name = f"{hostile.__file__}:{kind.__name__}"
    policy = GuardedPolicy(name, seconds=seconds)
    live = Live(policy)
    queue_of(live)
    try:
        live.decide()
        if counted is None:
            assert live.backend.failures == []
            return
        for _ in range(20):
            if live.backend.failures:
                break
            time.sleep(0.1)  # it answered before it ended
            live.decide()
        failure = live.backend.failures[0]
        assert failure.kind == counted, str(failure)
        assert "\n" not in str(failure)
        assert len(str(failure)) < 900
        assert str(failure).startswith(f"policy {name} at ")
        file, line = failure.where.rsplit(":", 1)
        assert Path(file) == Path(hostile.__file__)
        assert 0 < int(line) <= len(Path(file).read_text().splitlines())
        # First come, first served: job 1 has its nodes, and job 2 does not fit beside it.
        assert 1 in live.ledger.running
        assert live.ledger.free in {0, 1, 3}
    finally:
        policy.close()
    end = time.monotonic() + 10.0  # a process that was killed may take a moment to end
    while not children() <= before and time.monotonic() < end:
        time.sleep(0.05)
    assert children() <= before
    assert capfd.readouterr().out == ""


def test_a_policy_that_is_closed_while_its_process_starts_leaves_no_process():
    before = children()
    policy = GuardedPolicy("easy")
    live = Live(policy)
    policy.close()
    live.run_pass()  # another process starts, for this pass
    policy.close()
    assert live.answered.wait(30)
    assert children() <= before


def test_a_policy_that_sleeps_does_not_stop_the_thread_that_decides(tmp_path):
    policy = GuardedPolicy(written(tmp_path, "time.sleep(60)\nyield"), seconds=0.5)
    live = Live(policy)
    queue_of(live)
    try:
        live.run_pass()
        assert live.ledger.running == {}
        assert len(live.backend.wakes) == 1
        began = time.monotonic()
        assert live.answered.wait(30)
        assert time.monotonic() - began > 0.1
        live.run_pass()
        assert [failure.kind for failure in live.backend.failures] == ["loops"]
        assert list(live.ledger.running) == [1]
    finally:
        policy.close()
    assert live.longest < DECIDES_SECONDS


def test_first_come_first_served_decides_while_a_policy_is_late(tmp_path):
    policy = GuardedPolicy(written(tmp_path, "time.sleep(60)\nyield"), seconds=30.0)
    live = Live(policy)
    queue_of(live)
    try:
        live.run_pass()
        policy._deadline = time.monotonic()
        live.run_pass()
        assert list(live.ledger.running) == [1]
        assert live.backend.failures == []
        assert live.ledger.state.events.submitted == (
            1,
            2,
            3,
            4,
        )  # the policy is still to see them
    finally:
        policy.close()


@pytest.mark.parametrize("body", ["yield 1 // 0", "yield Start(99, 1)", "yield 1"])
def test_a_policy_that_always_fails_is_disabled_and_others_decide(tmp_path, body):
    before = children()
    policy = GuardedPolicy(written(tmp_path, body))
    live = Live(policy)
    queue_of(live)
    while not policy.disabled and len(live.backend.failures) <= 100:
        live.decide()
    count = len(live.backend.failures)
    assert count == 100
    assert children() <= before
    live.ledger.end(1)
    live.run_pass()
    assert live.backend.failures[count:][0].kind == "disabled"
    assert 2 in live.ledger.running


def test_a_policy_that_loses_too_much_time_is_disabled(tmp_path):
    name = written(tmp_path, "time.sleep(60)\nyield")
    policy = GuardedPolicy(name, seconds=0.1, max_lost_seconds=0.15)
    live = Live(policy)
    queue_of(live)
    while not policy.disabled:
        live.decide()
    assert 1 <= len(live.backend.failures) <= 2


def test_a_decision_that_is_out_of_date_is_left_and_the_policy_is_asked_again(tmp_path):
    policy = GuardedPolicy(written(tmp_path, "yield from super().decide(cluster)"))
    live = Live(policy)
    queue_of(live, (4, 4))
    try:
        live.answered.clear()
        live.run_pass()
        live.driver.withdraw(1)
        assert live.answered.wait(60)
        live.run_pass()
        assert live.ledger.running == {}
        assert live.backend.failures == []
        assert live.backend.wakes[-1] == 0.0
        live.decide()
        assert list(live.ledger.running) == [2]
        assert live.ledger.state.events.withdrawn == ()
    finally:
        policy.close()


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("os._exit(3)", "status 3"),
        ("os._exit(255)", "status 255"),
        ("os._exit(163)", "status 163"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_policy_is_started_again_after_it_ended(tmp_path, end, shown):
    body = f"if len(cluster.queue) == 2:\n    {end}\nyield from super().decide(cluster)"
    policy = GuardedPolicy(written(tmp_path, body))
    live = Live(policy)
    queue_of(live, (4, 4))
    try:
        live.decide()
        assert [shown in failure.reason for failure in live.backend.failures] == [True]
        live.driver.end(1)
        live.decide()
        assert list(live.ledger.running) == [2]
        assert len(live.backend.failures) == 1
    finally:
        policy.close()


def test_the_child_ends_with_the_process_that_started_it(tmp_path):
    name = written(tmp_path, "while True: pass")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        policy = GuardedPolicy(name, seconds=60.0)
        live = Live(policy)
        queue_of(live)
        live.run_pass()
        os.write(writer, f"{policy._child._process.pid}\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child = int(os.read(reader, 20))
    for number in (reader, writer):
        os.close(number)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}/stat").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{child}/stat").read_text().split(")")[1].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


def test_what_a_policy_prints_goes_to_stderr_up_to_a_bound(tmp_path, capfd):
    policy = GuardedPolicy(
        written(
            tmp_path, "for _ in range(9): print('a' * 10_000)\nyield from super().decide(cluster)"
        )
    )
    live = Live(policy)
    queue_of(live)
    live.decide()
    policy.close()
    assert list(live.ledger.running) == [1, 4]
    shown = capfd.readouterr()
    assert shown.out == ""
    assert 64 << 10 <= len(shown.err) < 70_000


def test_a_policy_that_cannot_be_made_is_one_line(tmp_path):
    before = children()
    path = tmp_path / "mine.py"
    path.write_text("def make():\n    raise RuntimeError('no such licence')\n")
    with pytest.raises(
        UsageError, check=with_code("user-code-failed", policy=f"{path}:make", kind="RuntimeError")
    ) as caught:
        GuardedPolicy(f"{path}:make")
    assert f"{path}:2" in str(caught.value)
    path.write_text("import os\nos._exit(255)\n")
    with pytest.raises(UsageError, match="status 255", check=with_code("policy-failed")):
        GuardedPolicy(f"{path}:make")
    assert children() <= before


@pytest.mark.parametrize(
    ("given", "shown"), [("'week'", "'week'"), ("-1.0", "-1.0"), ("float('nan')", "nan")]
)
def test_a_half_life_that_is_none_is_refused_before_the_first_pass(given, shown, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        f"from apples.scheduling import Easy\nclass Forgets(Easy):\n    usage_half_life = {given}\n"
    )
    with pytest.raises(
        UsageError, check=with_code("value-invalid", policy="Forgets", value=shown)
    ):
        GuardedPolicy(f"{path}:Forgets")


def test_a_policy_decides_the_same_in_the_child(tmp_path):
    policy = GuardedPolicy(written(tmp_path, "yield from super().decide(cluster)"))
    live = Live(policy)
    queue_of(live, (3, 2, 4, 1))
    try:
        state = live.ledger.state
        live.decide()
        assert list(live.ledger.running) == [1, 4]
        assert policy.asked == state
        assert policy.line_of(0) == policy.name.replace(":Mine", ":7")
    finally:
        policy.close()

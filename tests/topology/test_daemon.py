"""The daemon over its socket: one decision point for many clients, whatever they send."""

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import resource
import shutil
import socket
import threading
import time

import pytest
from bad_jobs import fork
from daemons import QUICK, Daemon
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.io import MAX_LINE_BYTES
from apples.topology import (
    Connection,
    CpuSet,
    DaemonOptions,
    DryRun,
    IsolationError,
    parse_request,
)

TOLD = {"until": "told"}


@pytest.fixture
def daemon():
    with Daemon() as running:
        yield running


def allocate(daemon, job, count=1, **more):
    return daemon.ask("allocate", job=job, count=count, **{**TOLD, **more})


def free(daemon):
    return CpuSet.parse(daemon.ask("status")["free"])


def test_a_job_gets_its_cpus_and_gives_them_back(daemon):
    given_ = allocate(daemon, "a", 4)
    assert given_["cpus"] == "0-3"
    assert str(free(daemon)) == "4-7"
    daemon.ask("deallocate", job="a")
    assert str(free(daemon)) == "0-7"
    assert not daemon.isolation.containers


def test_a_repeated_allocation_gives_the_same_cpus_and_another_requirement_is_refused(daemon):
    first = allocate(daemon, "a", 2, requirement="MAX_RADIUS=3")
    assert allocate(daemon, "a", 2, requirement="MAX_RADIUS=3") == first
    assert len(daemon.jobs) == 1
    for count, requirement, more in (
        (3, "MAX_RADIUS=3", {}),
        (2, "MAX_RADIUS=2", {}),
        (2, "MAX_RADIUS=3", {"least": 1}),
        (2, "MAX_RADIUS=3", {"until": "idle"}),
    ):
        with pytest.raises(UsageError) as raised:
            allocate(daemon, "a", count, requirement=requirement, **more)
        assert (raised.value.code, raised.value.fields["value"]) == ("job-exists", "running")
    daemon.ask("deallocate", job="a", number=first["number"])
    second = allocate(daemon, "a", 2)
    assert second["number"] > first["number"]
    for number, code in ((first["number"], "job-unknown"), (second["number"], "done")):
        assert code_of(daemon, "deallocate", job="a", number=number) == code
    assert not daemon.jobs


def test_the_job_of_a_process_is_not_given_to_another_process(daemon):
    def ask():
        with daemon.client() as asking:
            try:
                return asking.ask("allocate", job="mine", count=1)["cpus"]
            except UsageError as error:
                return error.code

    with daemon.client() as asking:
        given_ = asking.ask("allocate", job="mine", count=1)
        assert asking.ask("allocate", job="mine", count=1) == given_
        assert as_user(os.getuid(), ask) == "job-exists"


def test_suspending_and_resuming_again_change_nothing_more(daemon):
    cpus = allocate(daemon, "a", 2)["cpus"]
    assert [daemon.ask("suspend", job="a")["freed"] for _ in range(2)] == [cpus, cpus]
    assert [daemon.ask("resume", job="a")["cpus"] for _ in range(2)] == [cpus, cpus]


def test_never_and_not_now_are_two_refusals_each_with_both_numbers(daemon):
    allocate(daemon, "a", 6)
    with pytest.raises(LaunchError) as raised:
        allocate(daemon, "b", 3)
    assert raised.value.code == "cpus-busy"
    assert raised.value.fields == {"job": "b", "field": "-n", "value": 2, "needed": 3}
    with pytest.raises(InfeasibleError) as raised:
        allocate(daemon, "c", 9)
    assert raised.value.code == "cpus-unsatisfied"
    assert raised.value.fields == {"job": "c", "field": "-n", "value": 8, "needed": 9}
    with pytest.raises(UsageError) as raised:
        allocate(daemon, "d", 32, requirement="CPU_LIST=24-39,48-53")
    assert raised.value.code == "cpu-list-too-short"
    assert (raised.value.fields["value"], raised.value.fields["needed"]) == (22, 32)
    assert list(daemon.jobs) == ["a"]


def test_foreign_sets_are_kept_off_as_they_come_and_go():
    options = DaemonOptions(watch_seconds=0.05)
    with Daemon(options=options) as daemon:
        daemon.isolation.reserved["boot"] = CpuSet.parse("0-3")
        until(lambda: str(free(daemon)) == "4-7")
        version = daemon.ask("status")["version"]
        assert allocate(daemon, "a", 4)["cpus"] == "4-7"
        daemon.isolation.reserved.clear()
        until(lambda: str(free(daemon)) == "0-3")
        assert daemon.ask("status")["version"] > version


def test_a_hundred_clients_at_once_never_share_a_cpu():
    with Daemon("package:4 core:16 pu:1", options=DaemonOptions(ignored=("*",))) as daemon:
        held, guard, wrong, served = CpuSet(), threading.Lock(), [], []

        def client(number):
            nonlocal held
            with daemon.client() as asking:
                for turn in range(4):
                    name = f"c{number}-{turn}"
                    try:
                        found = asking.ask("allocate", job=name, count=1 + number % 5, **TOLD)
                    except LaunchError:
                        continue  # not now
                    cpus = CpuSet.parse(found["cpus"])
                    with guard:
                        if cpus & held:
                            wrong.append((name, str(cpus & held)))
                        held |= cpus
                        served.append(name)
                    with guard:
                        held -= cpus
                    asking.ask("deallocate", job=name)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        assert len(served) >= 12  # the first twelve ask for 60 CPUs at most
        assert str(free(daemon)) == "0-63"


def test_suspended_gives_back_and_resumed_gets_its_own_cpus_or_others_or_waits(daemon):
    allocate(daemon, "a", 4)
    allocate(daemon, "b", 2, requirement="RESUME_OPTION=ORIG_CPUS")
    for job in "ab":
        daemon.ask("suspend", job=job)
    assert str(free(daemon)) == "0-7"
    assert daemon.isolation.frozen == {daemon.jobs["a"]["pen"], daemon.jobs["b"]["pen"]}
    allocate(daemon, "c", 2, requirement="CPU_LIST=0-1")
    allocate(daemon, "d", 1, requirement="CPU_LIST=4")
    assert len(CpuSet.parse(daemon.ask("resume", job="a")["cpus"])) == 4
    with pytest.raises(LaunchError) as raised:
        daemon.ask("resume", job="b")
    assert raised.value.code == "cpus-busy"
    fields = raised.value.fields
    assert (fields["job"], fields["field"]) == ("b", "RESUME_OPTION")
    assert 4 in CpuSet.parse(fields["cpus"])
    daemon.ask("deallocate", job="d")
    daemon.ask("deallocate", job="a")
    assert daemon.ask("resume", job="b")["cpus"] == "4-5"


def test_mates_adapt_before_the_guest_starts_and_have_their_own_back_after_it(daemon):
    allocate(daemon, "mate", 8, least=2)
    with daemon.client() as following:
        assert following.ask("follow", job="mate")["cpus"] == "0-7"
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                allocate(daemon, "guest", 4, least=1, share=True, seconds=60.0)
            )
        )
        asking.start()
        event = following.receive(120)
        assert (event["event"], event["cpus"]) == ("resize", "0-3")
        assert daemon.jobs["mate"]["cpus"] == "0-7"  # nothing is taken before it has said so
        assert "guest" not in daemon.jobs
        following.send({"verb": "acknowledge", "serial": event["serial"]})
        asking.join(120)
        assert answers[0]["mates"] == {"mate": "acknowledged"}
        assert answers[0]["cpus"] == "4-7"
        assert following.receive(120)["cpus"] == "0-3"
        daemon.ask("deallocate", job="guest")
        assert following.receive(120)["cpus"] == "0-7"
    assert daemon.jobs["mate"]["cpus"] == "0-7"


def test_an_allocation_repeated_while_mates_adapt_is_one_allocation():
    request = {"verb": "allocate", "job": "guest", "count": 4, "least": 1, "share": True, **TOLD}
    with (
        Daemon("package:2 core:8 pu:1") as daemon,
        daemon.client() as following,
        daemon.client() as first,
        daemon.client() as again,
    ):
        allocate(daemon, "mate", 16, least=2)
        following.ask("follow", job="mate")
        again.ask("status")
        first.send({**request, "seconds": 5.0})
        event = following.receive(120)
        again.send({**request, "seconds": 5.0})
        for _ in range(3):
            daemon.ask("status")  # the daemon has read the repetition now
        following.send({"verb": "acknowledge", "serial": event["serial"]})
        given_, repeated = first.receive(120), again.receive(120)
        assert following.receive(120) == {"event": "resized", "serial": 0, "cpus": "0-11"}
        assert following.receive(0.2) is None  # the repetition asks the mate for nothing
        assert repeated == {**given_, "mates": {}}
        assert sorted(daemon.jobs) == ["guest", "mate"]


def test_a_mate_that_says_nothing_is_made_to_and_one_that_does_not_listen_is_not_waited_for(
    daemon,
):
    allocate(daemon, "deaf", 4, least=1)
    allocate(daemon, "silent", 4, least=1)
    with daemon.client() as following:
        following.ask("follow", job="silent")
        found = allocate(daemon, "guest", 4, least=2, share=True, seconds=0.05)
    assert found["mates"] == {"deaf": "not registered", "silent": "timeout"}


def test_an_attached_requirement_outlives_the_daemon_and_is_used_by_the_allocation():
    daemon = Daemon()
    with Daemon(home=daemon.home) as first:
        first.ask("attach", job="a", requirement="CPU_LIST=0-1")
        first.ask("attach", job="a", requirement="CPU_LIST=2-5")
        first.stop()
        with Daemon(home=first.home) as second:
            assert second.ask("read", job="a")["requirement"] == "CPU_LIST=2-5"
            assert [allocate(second, "a", 2)["cpus"] for _ in range(2)] == ["2-3"] * 2
            assert second.ask("read", job="a")["requirement"] == "CPU_LIST=2-5"
            assert code_of(second, "attach", job="a", requirement="") == "job-exists"
            assert code_of(second, "attach", job="b", requirement="CPU_LIST=x") != "done"
            second.ask("deallocate", job="a")
            assert code_of(second, "read", job="a") == "job-unknown"
            second.ask("attach", job="b", requirement="CPU_LIST=2-5")
            assert allocate(second, "b", 2, requirement="CPU_LIST=6-7")["cpus"] == "6-7"


class RefusesOnce(DryRun):
    """A kernel that refuses the first container."""

    refusals = 1

    def fit(self, container):
        if self.refusals:
            self.refusals -= 1
            raise IsolationError("refused", code="container-refused")
        return super().fit(container)


def test_an_attached_requirement_holds_after_the_kernel_refused_its_job():
    with Daemon(isolation=RefusesOnce(CpuSet.of(range(8)))) as daemon:
        daemon.ask("attach", job="a", requirement="CPU_LIST=6-7")
        assert code_of(daemon, "allocate", job="a", count=2, **TOLD) == "container-refused"
        assert allocate(daemon, "a", 2)["cpus"] == "6-7"


def test_a_repeated_allocation_waits_for_its_first_process_anew():
    seconds = 2.0
    with Daemon(options=dataclasses.replace(QUICK, claim_seconds=seconds)) as daemon:
        first = allocate(daemon, "a", 2, until="idle")
        begin = last = time.monotonic()
        while time.monotonic() < begin + 2 * seconds:
            again = allocate(daemon, "a", 2, until="idle")
            now = time.monotonic()
            assert again == first or now > last + seconds  # a machine that stood still
            first, last = again, now
        until(lambda: not daemon.jobs)


def test_a_keeper_that_dies_takes_its_allocation_with_it(daemon):
    child = fork()
    if child == 0:
        with daemon.client() as asking:
            asking.ask("allocate", job="kept", count=8)
        os._exit(0)
    os.waitpid(child, 0)
    until(lambda: str(free(daemon)) == "0-7")


@pytest.mark.parametrize("sent", [0, 1, 20, 70, None])
def test_a_client_that_dies_in_the_middle_of_a_request_has_allocated_nothing(daemon, sent):
    line = json.dumps({"verb": "allocate", "job": "x", "count": 8}).encode() + b"\n"
    child = fork()
    if child == 0:
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asking.connect(str(daemon.socket))
        asking.sendall(line[:sent])
        os._exit(0)
    os.waitpid(child, 0)
    until(lambda: str(free(daemon)) == "0-7" and not daemon.jobs)


def test_whoever_nobody_enters_in_time_is_released():
    with Daemon(options=DaemonOptions(claim_seconds=0.05, watch_seconds=0.05)) as daemon:
        allocate(daemon, "a", 8)
        until(lambda: str(free(daemon)) == "0-7")
        (problem,) = daemon.ask("status")["problems"]
        assert problem.startswith("a: ")
        assert problem.endswith("released")
        assert daemon.jobs == {}


def test_idle_allocation_outlives_a_change_of_its_processes_and_no_longer_absence():
    with Daemon(options=DaemonOptions(claim_seconds=1.0, watch_seconds=0.05)) as daemon:
        inside = daemon.isolation.inside
        container = allocate(daemon, "a", 8, until="idle")["pen"]
        inside[container] = {999_999}
        time.sleep(1.5)
        assert list(daemon.jobs) == ["a"]
        inside[container] = set()
        time.sleep(0.3)  # the daemon has begun to wait for a process
        inside[container] = {999_998}
        time.sleep(1.5)
        assert list(daemon.jobs) == ["a"]
        inside[container] = set()
        until(lambda: daemon.jobs == {})
        assert str(free(daemon)) == "0-7"


def test_cpus_of_processes_that_will_not_die_are_in_quarantine_until_they_have():
    with Daemon(options=DaemonOptions(kill_seconds=0.05, watch_seconds=0.05)) as daemon:
        container = allocate(daemon, "a", 3)["pen"]
        daemon.isolation.inside[container] = {999_999}
        daemon.isolation.stubborn.add(container)
        with pytest.raises(LaunchError) as raised:
            daemon.ask("deallocate", job="a")
        assert raised.value.code == "processes-left"
        assert raised.value.fields == {"job": "a", "value": [999_999], "cpus": "0-2"}
        assert daemon.ask("status")["quarantined"] == {"a": "0-2"}
        assert str(free(daemon)) == "3-7"
        daemon.isolation.stubborn.clear()
        until(lambda: str(free(daemon)) == "0-7")
        assert daemon.ask("status")["quarantined"] == {}


def test_memory_options_narrow_the_pen_or_only_say_what_to_prefer():
    machine = "package:2 [numa] core:4 pu:1"
    isolation = DryRun(CpuSet.parse("0-7"), CpuSet.parse("0-1"))
    with Daemon(machine, isolation) as daemon:

        def mems(job, options):
            given_ = allocate(daemon, job, 2, requirement=f"CPUSET[{options}]")
            return given_["mems"], given_["prefer"]

        assert mems("plain", "CPU_LIST=4-7") == ("0-1", "")
        wanted = "CPU_LIST=4-7;CPUSET_OPTIONS=CPUSET_MEMORY_MANDATORY"
        assert mems("bound", wanted) == ("1", "")
        assert str(daemon.isolation.containers[daemon.jobs["bound"]["pen"]].mems) == "1"
        wanted = "CPUSET_OPTIONS=CPUSET_MEMORY_LOCAL|CPUSET_CPU_EXCLUSIVE"
        assert mems("near", wanted) == ("0-1", "0")
        assert daemon.isolation.containers[daemon.jobs["near"]["pen"]].exclusive


def test_a_request_that_brings_out_a_fault_of_ours_ends_alone(daemon, monkeypatch):
    monkeypatch.delattr(daemon.node, "topology")
    with daemon.client() as asking:
        with pytest.raises(LaunchError) as raised:
            asking.ask("satisfies", count=1)
        assert raised.value.code == "daemon-fault"
        assert raised.value.fields == {"kind": "AttributeError"}
        assert asking.ask("jobs")["jobs"] == []


def answer_to(daemon, data):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(120)
        asking.connect(str(daemon.socket))
        asking.sendall(data)
        asking.shutdown(socket.SHUT_WR)
        found = b""
        while piece := asking.recv(1 << 16):
            found += piece
    return [json.loads(line) for line in found.splitlines()]


def allocation(**fields):
    """Return an allocate request as a line."""
    document = {"verb": "allocate", "job": "a", **fields}
    return json.dumps(document).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "code", "fields"),
    [
        (b"nonsense\n", "request-invalid", {}),
        (b"[]\n", "request-invalid", {}),
        (b'{"verb":"format"}\n', "verb-unknown", {"field": "verb"}),
        (
            b'{"verb":"allocate"}\n',
            "field-missing",
            {"field": "job"},
        ),
        (allocation(count="4"), "value-invalid", {"field": "count"}),
        (allocation(job="../a"), "value-invalid", {"field": "job"}),
        (allocation(count=1e99), "value-invalid", {"field": "count"}),
        (allocation(colour=1), "field-unknown", {"field": "colour"}),
        (
            allocation(requirement="CPU_LIST=4-2"),
            "cpu-list-invalid",
            {"field": "CPU_LIST", "value": "4-2"},
        ),
        (allocation(requirement="PSET[PTILE=2]"), "broker-unknown", {"value": "PSET"}),
        (
            allocation(requirement="CPUSET_TYPE=none"),
            "cpuset-type-unsupported",
            {"value": "none"},
        ),
        (
            b'{"verb":"satisfies","requirement":"CPUSET_TYPE=static"}\n',
            "value-invalid",
            {"value": "static"},
        ),
        (b'{"verb":"bind","job":"nobody"}\n', "job-unknown", {"job": "nobody"}),
        (b"[" * 60_000 + b"\n", "request-invalid", {}),
        (b"x" * (MAX_LINE_BYTES + 10) + b"\n", "message-too-long", {"bound": MAX_LINE_BYTES}),
    ],
)
def test_what_is_no_request_is_refused_in_words_and_changes_nothing(daemon, line, code, fields):
    (answer,) = answer_to(daemon, line)
    assert not answer["ok"]
    assert (answer["code"], answer["error_code"]) == (2, code)
    assert fields.items() <= answer["fields"].items()
    assert str(free(daemon)) == "0-7"


@settings(max_examples=examples(300), deadline=None)
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["verb", "job", "count", "seconds", "allocate", "requirement"]),
                inner | st.sampled_from(["allocate", "resize", "attach", "follow", "a"]),
                max_size=5,
            )
        ),
        max_leaves=8,
    ).map(lambda document: json.dumps(document).encode())
)
def test_any_bytes_are_a_request_or_an_error_in_words(line):
    with contextlib.suppress(ApplesError):  # anything else that is raised is a fault
        assert parse_request(line).verb


def as_user(number, act):
    """Run `act` in a process of another user; return what it returns."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            os.setgid(number)
            os.setuid(number)
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_the_kernel_says_who_asks_and_a_job_is_its_owners(daemon):
    daemon.home.chmod(0o755)
    (daemon.home / "run").chmod(0o755)

    def try_all(job):
        def run():
            found = {}
            asked = {
                "bind": {},
                "deallocate": {},
                "suspend": {},
                "resume": {},
                "resize": {"count": 2},
                "attach": {"requirement": ""},
                "read": {},
                "follow": {},
                "allocate": {},
                "rescan": {},
            }
            with daemon.client() as asking:
                for verb, fields in asked.items():
                    named = {} if verb == "rescan" else {"job": job}
                    try:
                        asking.ask(verb, **named, **fields)
                        found[verb] = "done"
                    except ApplesError as error:
                        found[verb] = [error.code, error.fields.get("principal")]
            return found

        return run

    def begin():
        with daemon.client() as asking:
            return asking.ask("allocate", job="theirs", count=1, **TOLD)

    assert as_user(1001, begin)["job"] == "theirs"
    assert daemon.jobs["theirs"]["principal"] == "uid:1001"
    before = dict(daemon.jobs)
    for job in ("theirs",):
        said = as_user(1002, try_all(job))
        assert len(said) == 10
        assert all(refusal == ["permission-denied", "uid:1002"] for refusal in said.values()), said
    assert daemon.jobs == before
    daemon.ask("deallocate", job="theirs")


def resized(daemon, job, count):
    return daemon.ask("resize", job=job, count=count)["cpus"]


@pytest.mark.parametrize(
    ("policy", "count", "most"),
    [
        ("CPU_LIST=0-1,6-7", 4, "0-1,6-7"), ("WHOLE_CORES=Y", 4, "0-3"), ("MAX_CPU_PER_NODE=3", 6, "0-2,4-6"),
    ],
)  # fmt: skip
def test_growing_and_shrinking_keep_the_policy_of_the_site(policy, count, most):
    options = dataclasses.replace(QUICK, mandatory=policy)
    with Daemon("numa:2 core:2 pu:2", options=options) as daemon:
        allocate(daemon, "a", 2)
        assert resized(daemon, "a", count) == most
        with pytest.raises(ApplesError) as raised:
            resized(daemon, "a", 9)
        assert raised.value.code in {"cpu-list-too-short", "cpus-unsatisfied", "cpus-busy"}
        kept = CpuSet.parse(resized(daemon, "a", 2))
        assert len(kept) == 2
        assert kept <= CpuSet.parse(most)
        assert policy != "WHOLE_CORES=Y" or str(kept) in {"0-1", "2-3"}


def test_growing_keeps_the_radius_of_the_site():
    options = dataclasses.replace(QUICK, mandatory="MAX_RADIUS=2")
    with Daemon("package:2 core:4 pu:1", options=options) as daemon:
        allocate(daemon, "a", 2)
        assert resized(daemon, "a", 4) == "0-3"
        with pytest.raises(InfeasibleError) as raised:
            resized(daemon, "a", 5)
        assert raised.value.fields["field"] == "MAX_RADIUS"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_no_way_to_more_cpus_passes_the_limit_of_a_user():
    with Daemon(options=DaemonOptions(most_cpus=2, mandatory="WHOLE_CORES=Y")) as daemon:
        daemon.home.chmod(0o755)
        (daemon.home / "run").chmod(0o755)

        def run():
            with daemon.client() as asking:
                asking.ask("allocate", job="a", count=2, **TOLD)
                found = [code_of(asking, "resize", job="a", count=4)]
                asking.ask("suspend", job="a")
                asking.ask("allocate", job="b", count=2, **TOLD)
                return [*found, code_of(asking, "resume", job="a")]

        assert as_user(1001, run) == ["quota-exceeded"] * 2
        assert len(daemon.ask("jobs")["jobs"]) == 2
    with Daemon(
        "core:4 pu:2", options=DaemonOptions(most_cpus=1, mandatory="WHOLE_CORES=Y")
    ) as daemon:
        daemon.home.chmod(0o755)
        (daemon.home / "run").chmod(0o755)

        def one():
            with daemon.client() as asking:
                return code_of(asking, "allocate", job="a", count=1, **TOLD)

        assert as_user(1001, one) == "quota-exceeded"


def code_of(asking, verb, **fields):
    try:
        asking.ask(verb, **fields)
    except ApplesError as error:
        return error.code
    return "done"


def test_a_daemon_short_of_descriptors_ends_no_job():
    with Daemon() as daemon, daemon.client() as asking:
        asking.ask("status")  # it is accepted
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))  # whatever is opened now fails
        try:
            asking.ask("allocate", job="a")
            asking.ask("rescan")
            assert [job["state"] for job in asking.ask("jobs")["jobs"]] == ["running"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        asking.ask("rescan")
        assert [job["state"] for job in asking.ask("jobs")["jobs"]] == ["running"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_a_user_has_a_limit_that_the_operator_has_not():
    options = DaemonOptions(most_cpus=3, most_jobs=2)
    with Daemon(options=options) as daemon:
        daemon.home.chmod(0o755)
        (daemon.home / "run").chmod(0o755)

        def run():
            said = []
            with daemon.client() as asking:
                for name, count in (("a", 4), ("b", 1), ("c", 1), ("d", 1)):
                    try:
                        asking.ask("allocate", job=name, count=count, **TOLD)
                        said.append("done")
                    except LaunchError as error:
                        said.append([error.code, dict(error.fields)])
            return said

        said = as_user(1001, run)
        assert said[1:3] == ["done", "done"]
        for (code, fields), job, limit in ((said[0], "a", "cpus"), (said[3], "d", "jobs")):
            assert code == "quota-exceeded"
            assert (fields["job"], fields["principal"], fields["field"]) == (
                job,
                "uid:1001",
                limit,
            )
        assert (said[0][1]["value"], said[0][1]["bound"]) == (4, 3)
        assert (said[3][1]["value"], said[3][1]["bound"]) == (3, 2)
        allocate(daemon, "root", 5)


def test_a_second_daemon_on_the_same_state_is_refused(daemon):
    with pytest.raises(LaunchError) as raised, Daemon(home=daemon.home):
        pass
    assert raised.value.code == "directory-locked"
    assert raised.value.fields["file"] == str(daemon.home / "state")


def test_the_path_of_the_socket_may_be_long(tmp_path):
    home = tmp_path / ("long" * 20) / ("er" * 40)
    home.mkdir(parents=True)
    with Daemon(home=home) as daemon:
        assert free(daemon) == CpuSet.parse("0-7")


def test_a_directory_that_others_can_write_to_is_refused():
    daemon = Daemon()
    (daemon.home / "run").chmod(0o777)
    with pytest.raises(UsageError) as raised, daemon:
        pass
    assert raised.value.code == "directory-not-private"
    assert raised.value.fields["file"] == str(daemon.home / "run")
    shutil.rmtree(daemon.home)


def test_no_client_holds_up_the_others(daemon):
    silent = []
    for _ in range(50):
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asking.connect(str(daemon.socket))
        asking.sendall(b'{"verb":')
        silent.append(asking)
    assert daemon.ask("status")["fence"] == "dry-run"
    for asking in silent:
        asking.close()
    assert QUICK.kill_seconds


def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector(daemon):
    """Whoever ends it. What thousands of them leave is looked at in one go, in which nobody is answered."""

    def alive():
        # Not `isinstance`: it asks a weak proxy for the class of what it stood for, which may be gone.
        return sum(type(one) is Connection for one in gc.get_objects())

    async def end_all():
        for task in daemon.server.connections.tasks():
            task.cancel()

    gc.collect()  # what other tests left
    gc.disable()
    try:
        for _ in range(5):
            with daemon.client() as asking:
                asking.ask("status")
            with daemon.client() as asking, pytest.raises(UsageError):
                asking.ask("deallocate", job="none")
        until(lambda: not alive())
        silent = [daemon.client() for _ in range(5)]
        until(lambda: alive() == 5)
        asyncio.run_coroutine_threadsafe(end_all(), daemon.loop).result(120)
        until(lambda: not alive())
        for asking in silent:
            asking.close()
    finally:
        gc.enable()


@pytest.mark.more
def test_a_daemon_that_stops_closes_what_it_accepted_just_before():
    """A socket that nobody closes is told of when its object is collected; pytest makes that an error."""
    for number in range(1, 21):
        with Daemon() as daemon:
            asking = [socket.socket(socket.AF_UNIX) for _ in range(number)]
            for one in asking:
                one.connect(str(daemon.socket))
        gc.collect()
        for one in asking:
            one.close()

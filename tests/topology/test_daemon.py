"""The daemon over its socket: one decision point for many clients, whatever they send."""

import asyncio
import contextlib
import gc
import json
import os
import shutil
import socket
import threading

import pytest
from bad_jobs import fork
from daemons import QUICK, Daemon
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.io import MAX_LINE_BYTES
from apples.topology import Connection, CpuSet, DaemonOptions, DryRun, parse_request

TOLD = {"until": "told"}


@pytest.fixture
def daemon():
    with Daemon() as running:
        yield running


def allocate(daemon, job, count=1, request=None, **more):
    return daemon.ask("allocate", request=request or job, job=job, count=count, **{**TOLD, **more})


def free(daemon):
    return CpuSet.parse(daemon.ask("status")["free"])


def test_a_job_gets_its_cpus_and_gives_them_back(daemon):
    given_ = allocate(daemon, "a", 4)
    assert given_["cpus"] == "0-3"
    assert str(free(daemon)) == "4-7"
    daemon.ask("deallocate", request="d", job="a")
    assert str(free(daemon)) == "0-7"
    assert not daemon.isolation.containers


def test_the_same_request_twice_is_answered_twice_and_done_once(daemon):
    first = allocate(daemon, "a", 2, request="x")
    assert allocate(daemon, "a", 2, request="x") == first
    assert len(daemon.jobs) == 1
    with pytest.raises(UsageError) as raised:
        allocate(daemon, "a", 3, request="x")
    assert (raised.value.code, raised.value.fields["value"]) == ("request-id-reused", "x")
    daemon.ask("deallocate", request="d", job="a")
    daemon.ask("deallocate", request="d", job="a")


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
                        found = asking.ask(
                            "allocate", request=name, job=name, count=1 + number % 5, **TOLD
                        )
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
                    asking.ask("deallocate", request=f"d{name}", job=name)

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
        daemon.ask("suspend", request=f"s{job}", job=job)
    assert str(free(daemon)) == "0-7"
    assert daemon.isolation.frozen == {daemon.jobs["a"]["pen"], daemon.jobs["b"]["pen"]}
    allocate(daemon, "c", 2, requirement="CPU_LIST=0-1")
    allocate(daemon, "d", 1, requirement="CPU_LIST=4")
    assert len(CpuSet.parse(daemon.ask("resume", request="ra", job="a")["cpus"])) == 4
    with pytest.raises(LaunchError) as raised:
        daemon.ask("resume", request="rb", job="b")
    assert raised.value.code == "cpus-busy"
    fields = raised.value.fields
    assert (fields["job"], fields["field"]) == ("b", "RESUME_OPTION")
    assert 4 in CpuSet.parse(fields["cpus"])
    daemon.ask("deallocate", request="dd", job="d")
    daemon.ask("deallocate", request="da", job="a")
    assert daemon.ask("resume", request="rb", job="b")["cpus"] == "4-5"


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
        daemon.ask("deallocate", request="dg", job="guest")
        assert following.receive(120)["cpus"] == "0-7"
    assert daemon.jobs["mate"]["cpus"] == "0-7"


def test_a_request_repeated_while_it_is_under_way_joins_it_and_another_of_its_id_is_refused(
    daemon,
):
    allocate(daemon, "mate", 8, least=2)
    with daemon.client() as following:
        following.ask("follow", job="mate")
        answers = []

        def ask():
            answers.append(allocate(daemon, "guest", 4, least=1, share=True, seconds=60.0))

        twice = [threading.Thread(target=ask) for _ in range(2)]
        twice[0].start()
        event = following.receive(120)
        twice[1].start()
        with pytest.raises(UsageError) as raised:
            allocate(daemon, "other", 1, request="guest")
        assert (raised.value.code, raised.value.fields["value"]) == ("request-id-reused", "guest")
        following.send({"verb": "acknowledge", "serial": event["serial"]})
        for each in twice:
            each.join(120)
    assert answers[0] == answers[1]
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


def test_messages_are_numbered_outlive_the_daemon_and_are_read_again_on_the_host():
    daemon = Daemon()
    with Daemon(home=daemon.home) as first:
        first.ask("post", request="p1", job="a", text="CPU_LIST=2-5", number=3)
        first.ask("post", request="p2", job="a", text="hello")
        first.stop()
        with Daemon(home=first.home) as second:
            read = second.ask("read", job="a")["messages"]
            assert [(m["number"], m["text"]) for m in read] == [(0, "hello"), (3, "CPU_LIST=2-5")]
            assert allocate(second, "a", 2, message=3)["cpus"] == "2-3"
            with pytest.raises(UsageError) as raised:
                second.ask("read", job="a", number=9)
            assert raised.value.code == "message-unknown"
            assert raised.value.fields == {"job": "a", "value": 9}
            with pytest.raises(UsageError) as raised:
                second.ask("post", request="p3", job="a", text="x" * 8193)
            assert (raised.value.code, raised.value.fields["field"]) == (
                "value-invalid",
                "text",
            )


def test_a_keeper_that_dies_takes_its_allocation_with_it(daemon):
    child = fork()
    if child == 0:
        with daemon.client() as asking:
            asking.ask("allocate", request="k", job="kept", count=8)
        os._exit(0)
    os.waitpid(child, 0)
    until(lambda: str(free(daemon)) == "0-7")


@pytest.mark.parametrize("sent", [0, 1, 20, 70, None])
def test_a_client_that_dies_in_the_middle_of_a_request_has_allocated_nothing(daemon, sent):
    line = (
        json.dumps({"verb": "allocate", "request": "r", "job": "x", "count": 8}).encode() + b"\n"
    )
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


def test_cpus_of_processes_that_will_not_die_are_in_quarantine_until_they_have():
    with Daemon(options=DaemonOptions(kill_seconds=0.05, watch_seconds=0.05)) as daemon:
        container = allocate(daemon, "a", 3)["pen"]
        daemon.isolation.inside[container] = {999_999}
        daemon.isolation.stubborn.add(container)
        with pytest.raises(LaunchError) as raised:
            daemon.ask("deallocate", request="d", job="a")
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
    document = {"verb": "allocate", "request": "r", "job": "a", **fields}
    return json.dumps(document).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "code", "fields"),
    [
        (b"nonsense\n", "request-invalid", {}),
        (b"[]\n", "request-invalid", {}),
        (b'{"verb":"format"}\n', "verb-unknown", {"field": "verb"}),
        (
            b'{"verb":"allocate","request":"r"}\n',
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
            b'{"verb":"satisfies","requirement":"CPUSET_TYPE=static;CPUSET_NAME=boot"}\n',
            "cpuset-type-unsupported",
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
                st.sampled_from(
                    ["verb", "job", "request", "count", "seconds", "allocate", "text"]
                ),
                inner | st.sampled_from(["allocate", "resize", "post", "follow", "a"]),
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
                "deallocate": {"request": "1"},
                "suspend": {"request": "2"},
                "resume": {"request": "3"},
                "resize": {"request": "4", "count": 2},
                "post": {"request": "5", "text": "mine now"},
                "read": {},
                "follow": {},
                "allocate": {"request": "6"},
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
            return asking.ask("allocate", request="u", job="theirs", count=1, **TOLD)

    assert as_user(1001, begin)["job"] == "theirs"
    assert daemon.jobs["theirs"]["principal"] == "uid:1001"
    before = dict(daemon.jobs)
    for job in ("theirs",):
        said = as_user(1002, try_all(job))
        assert len(said) == 10
        assert all(refusal == ["permission-denied", "uid:1002"] for refusal in said.values()), said
    assert daemon.jobs == before
    daemon.ask("deallocate", request="root", job="theirs")


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
                        asking.ask("allocate", request=name, job=name, count=count, **TOLD)
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
                asking.ask("deallocate", request="d", job="none")
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

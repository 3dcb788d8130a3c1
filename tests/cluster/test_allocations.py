"""Which hosts Slurm's allocations give a live scheduler, and until when."""

import json
from dataclasses import replace
from math import inf

import pytest

import hat
from apples.cluster import AllocationFollower, AllocationWatch, HostLease
from apples.errors import LaunchError, UsageError
from apples.launch import AllocatedPart, SlurmAllocationState, SlurmNode, allocations, sharing
from apples.launch import ssh_command as ssh

OWN = '[[host]]\nname = "n1"\nseconds_per_point = 2e-9\n[[host]]\nname = "other"\n'


class Slurm:
    """What Slurm says."""

    def __init__(self):
        self.jobs, self.asked, self.now = [], 0, 1000.0
        self.parts, self.parts_asked = {}, []
        self.listed = [
            SlurmNode(f"n{k}", f"n{k}", ("IDLE",), 4, 8, 8, 1 << 30, 0, "x86_64", (), ("all",))
            for k in range(1, 5)
        ]

    def nodes(self):
        self.asked += 1
        return self.listed

    def watch(self, tmp_path, *asked, own=None, steps=False):
        words = (asked, own, tmp_path / "list.toml", lambda: self.jobs, self.nodes)
        return AllocationWatch(*words, lambda: self.now, parts=self.part, steps=steps)

    def part(self, job):
        if self.parts is None:
            raise LaunchError("scontrol: it is busy", code="slurm-command-failed")
        self.parts_asked.append(job)
        return self.parts.get(job, {})


@pytest.fixture
def slurm():
    return Slurm()


def test_nodes_have_the_entry_of_the_users_list_else_their_cores_and_memory(slurm, tmp_path):
    own = tmp_path / "hosts.toml"
    own.write_text(OWN)
    slurm.jobs = [
        SlurmAllocationState(7, "pool", "n[1-2]", 4600.0), SlurmAllocationState(8, "mine", "n3"),
        SlurmAllocationState(9, "pool", "n2", 1600.0),
    ]  # fmt: skip
    watch = slurm.watch(tmp_path, "pool", own=own)
    assert watch.look() == [
        HostLease("n1", 3600.0, "allocation 7"), HostLease("n2", 3600.0, "allocation 7")
    ]  # fmt: skip
    assert (watch.hosts["n1"].seconds_per_point, watch.hosts["n1"].slots) == (2e-9, 1)
    assert (watch.hosts["n2"].slots, watch.hosts["n2"].free_memory) == (4, 1 << 30)
    slurm.now, slurm.jobs = 1100.0, [SlurmAllocationState(8, "pool", "n2,n3", inf)]
    assert watch.look() == [
        HostLease("n2", inf, "allocation 8"), HostLease("n3", inf, "allocation 8"),
        HostLease("n1", 0.0, "allocation 7"),
    ]  # fmt: skip
    assert watch.look()[-1].host == "n3"  # that n1 is over was said
    assert slurm.asked == 2
    again = slurm.watch(tmp_path, "8")
    assert "n1" in again.hosts  # something may be left there


def test_a_node_is_as_large_as_what_its_allocation_has_of_it(slurm, tmp_path):
    own = tmp_path / "hosts.toml"
    own.write_text(
        '[[host]]\nname = "n1"\nslots = 3\nfree_memory = "1 GiB"\n[[host]]\nname = "n3"\n'
    )
    slurm.jobs = [SlurmAllocationState(7, "pool", "n[1-4]", 4600.0)]
    slurm.parts[7] = {
        "n1": AllocatedPart(4, 1 << 20), "n2": AllocatedPart(5, 0), "n3": AllocatedPart(8, 1 << 20),
    }  # fmt: skip
    watch = slurm.watch(tmp_path, "pool", own=own)

    def sizes():
        watch.look()
        return [
            (watch.hosts[f"n{k}"].slots, watch.hosts[f"n{k}"].free_memory) for k in range(1, 5)
        ]

    assert sizes() == [(2, 1 << 20), (2, 1 << 30), (1, 1 << 20), (4, 1 << 30)]
    assert sizes() == [(2, 1 << 20), (2, 1 << 30), (1, 1 << 20), (4, 1 << 30)]
    assert (slurm.parts_asked, slurm.asked) == ([7], 1)
    slurm.jobs = [SlurmAllocationState(8, "pool", "n[1-4]", inf)]  # it has all of them
    watch = slurm.watch(tmp_path, "pool", own=own)
    assert sizes() == [(3, 1 << 30), (4, 1 << 30), (1, None), (4, 1 << 30)]


def test_while_slurm_does_not_say_what_an_allocation_has_nothing_is_known_of_it(slurm, tmp_path):
    slurm.jobs = [SlurmAllocationState(7, "pool", "n1", 4600.0)]
    watch, said = slurm.watch(tmp_path, "pool"), slurm.parts
    slurm.parts = None
    with pytest.raises(LaunchError) as refused:
        watch.look()
    assert refused.value.code == "slurm-command-failed"
    slurm.parts = said
    assert [(one.host, watch.hosts[one.host].slots) for one in watch.look()] == [("n1", 4)]


def test_by_steps_a_node_is_used_by_one_allocation_until_that_is_over(slurm, tmp_path):
    slurm.jobs = [SlurmAllocationState(7, "pool", "n1", 4600.0)]
    watch = slurm.watch(tmp_path, "pool", steps=True)
    assert watch.look() == [HostLease("n1", 3600.0, "allocation 7")]
    words = ssh.command(ssh.reach(watch.hosts["n1"], watch.hosts), ["-I"])
    assert words[-7:-4] == ["--nodelist=n1", "--jobid=7", "sh"]
    slurm.jobs += [SlurmAllocationState(8, "pool", "n[1-2]", inf)]
    n1 = watch.look()[0]
    assert (n1.source, n1.seconds) == ("allocation 7", 3600.0)  # what runs there ends with it
    assert watch.hosts["n2"].allocation == "8"
    del slurm.jobs[0]
    assert [one.source for one in watch.look()] == ["allocation 8", "allocation 8"]
    assert watch.hosts["n1"].allocation == "8"
    slurm.jobs = []
    assert {one.seconds for one in watch.look()} == {0.0}
    assert watch.hosts["n1"].allocation == "8"  # what is asked there is answered by Slurm
    slurm.jobs = [SlurmAllocationState(9, "pool", "n1", inf)]
    over_ssh = slurm.watch(tmp_path, "pool")
    over_ssh.look()
    assert over_ssh.hosts["n1"].allocation == ""
    assert sharing.socket_name(ssh.reach(watch.hosts["n1"], watch.hosts)) == ""


def test_what_names_no_allocation_or_cannot_be_read_is_refused(slurm, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError) as outside:
        slurm.watch(tmp_path, "own")
    assert outside.value.code == "outside-allocation"
    assert outside.value.fields == {"option": "--slurm", "value": "own"}
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    slurm.jobs = [SlurmAllocationState(8, "mine", "n[1-")]
    with pytest.raises(LaunchError) as unreadable:
        slurm.watch(tmp_path, "own").look()
    assert unreadable.value.code == "slurm-answer-invalid"
    assert unreadable.value.fields == {"command": "squeue", "job": 8}
    slurm.jobs = [SlurmAllocationState(8, "mine", "n[1-2000]")]
    with pytest.raises(LaunchError) as many:
        slurm.watch(tmp_path, "own").look()
    assert many.value.code == "too-many-nodes"
    assert many.value.fields == {"value": 2000, "bound": 1000}


def test_a_scheduler_knows_a_host_before_it_is_asked_and_none_that_another_has(slurm, tmp_path):
    slurm.jobs = [SlurmAllocationState(7, "pool", "n[1-2]", 4600.0)]
    watch, said, heard = slurm.watch(tmp_path, "pool"), [], []
    assert list(watch.hosts) == []

    def claim(host):
        if host == "n2":
            raise LaunchError("n2: taken")

    one = AllocationFollower(
        watch, lambda host: heard.append(host.name), lambda host: heard.append(f"-{host}"), claim,
        said.append,
    )  # fmt: skip
    for _ in range(2):
        one.look(heard.append)
    slurm.jobs = []
    one.look(heard.append)
    term = HostLease("n1", 3600.0, "allocation 7")
    over = [
        HostLease("n1", 0.0, "allocation 7"),
        "-n1",
        HostLease("n2", 0.0, "allocation 7"),
        "-n2",
    ]
    assert heard == [term, "n1", term, *over]
    assert said == ["n2: taken"]


@pytest.mark.parametrize("state", ["RUNNING", ["RUNNING"]])
def test_running_jobs_of_the_user_are_read_in_both_shapes(state):
    job = {"job_id": 4, "name": "pool", "nodes": "n1", "user_name": "ada", "job_state": state}
    other = {**job, "user_name": "bob"}
    waits = {**job, "job_state": "PENDING"}
    ends = {**job, "job_id": 5, "end_time": {"set": True, "number": 9}}
    listing = json.dumps({"jobs": [job, other, waits, None, ends, {**job, "end_time": 0}]})
    assert allocations(listing, "ada") == [
        SlurmAllocationState(4, "pool", "n1"), SlurmAllocationState(5, "pool", "n1", 9.0),
        SlurmAllocationState(4, "pool", "n1"),
    ]  # fmt: skip
    with pytest.raises(LaunchError) as silent:
        allocations('{"jobs": [], "errors": [{"description": "no"}]}', "ada")
    assert (silent.value.code, silent.value.fields["command"]) == (
        "slurm-command-failed",
        "squeue",
    )


def test_a_node_has_its_memory_though_slurm_has_allocated_it_and_one_out_of_service_is_named(
    slurm, tmp_path
):
    slurm.listed = [
        SlurmNode("n1", "n1", ("ALLOCATED",), 4, 8, 0, 64, 50, "", (), ("all",)),
        SlurmNode("n2", "n2", ("MIXED", "DRAIN"), 4, 8, 0, 64, 64, "", (), ("all",), "old"),
    ]  # fmt: skip
    slurm.jobs = [SlurmAllocationState(7, "pool", "n2")]
    watch, said = slurm.watch(tmp_path, "pool"), []
    assert watch.look() == []
    assert "n2" in watch.problem
    assert "old" in watch.problem
    slurm.jobs = [SlurmAllocationState(7, "pool", "n[1-2]")]
    one = AllocationFollower(watch, lambda _: None, lambda _: None, lambda _: None, said.append)
    for _ in range(2):
        one.look(lambda _: None)
    assert [host.name for host in watch.hosts] == ["n1"]
    assert watch.hosts["n1"].free_memory == 64
    assert said == [watch.problem]


def test_a_list_that_cannot_be_written_is_written_by_the_next_look(slurm, tmp_path):
    watch, said, heard = slurm.watch(tmp_path, "pool"), [], []
    one = AllocationFollower(watch, heard.append, heard.append, lambda _: None, said.append)
    slurm.jobs = [SlurmAllocationState(7, "pool", "n[1-2]", 4600.0)]
    watch.place.mkdir()
    for _ in range(2):
        one.look(lambda _: None)
    assert (heard, len(said)) == ([], 1)
    assert str(watch.place) in said[0]
    watch.place.rmdir()
    one.look(lambda _: None)
    assert [host.name for host in heard] == ["n1", "n2"]
    assert 'name = "n2"' in watch.place.read_text()


def test_a_list_that_is_none_does_not_take_the_place_of_the_one_that_jobs_read(slurm, tmp_path):
    slurm.jobs = [SlurmAllocationState(7, "pool", "n1", 4600.0)]
    watch = slurm.watch(tmp_path, "pool")
    watch.look()
    before = watch.place.read_bytes()
    slurm.jobs = [SlurmAllocationState(8, "pool", "n1", 4600.0)]
    slurm.parts[8] = {"n1": AllocatedPart(2, -5)}
    with pytest.raises(hat.DocumentError) as invalid:
        watch.look()
    assert invalid.value.fields["field"] == "host[0].free_memory"
    assert watch.place.read_bytes() == before


def test_a_node_of_no_cores_stops_nothing(slurm, tmp_path):
    slurm.listed[0] = replace(slurm.listed[0], cores=0, cpus=0)
    slurm.jobs = [SlurmAllocationState(7, "pool", "n[1-2]", 4600.0)]
    watch = slurm.watch(tmp_path, "pool")
    assert [one.host for one in watch.look()] == ["n1", "n2"]
    assert [host.slots for host in watch.hosts] == [1, 4]


def test_whatever_goes_wrong_at_a_look_is_said_and_the_next_one_is_made(slurm, tmp_path):
    joined, said = [], []

    def joins(host):
        joined.append(host.name)
        if len(joined) == 1:
            raise KeyError(host.name)

    slurm.jobs = [SlurmAllocationState(7, "pool", "n1", 4600.0)]
    watch = slurm.watch(tmp_path, "pool")
    one = AllocationFollower(watch, joins, lambda _: None, lambda _: None, said.append)
    for _ in range(3):
        one.look_again(lambda _: None)
    assert joined == ["n1", "n1"]
    (line,) = said
    assert "KeyError: 'n1'" in line


def test_a_list_whose_hosts_have_other_cores_is_told_though_none_of_them_joins(slurm, tmp_path):
    slurm.jobs = [SlurmAllocationState(7, "pool", "n1", 4600.0)]
    slurm.parts[7] = {"n1": AllocatedPart(2, 0)}
    watch, told = slurm.watch(tmp_path, "pool"), []

    def listed(hosts):
        told.append([host.slots for host in hosts])

    def joins(host):
        told.append(host.name)

    one = AllocationFollower(watch, joins, lambda _: None, lambda _: None, lambda _: None, listed)
    for _ in range(2):
        one.look(lambda _: None)
    slurm.jobs = [SlurmAllocationState(8, "pool", "n1", 4600.0)]  # which has all of it
    for _ in range(2):
        one.look(lambda _: None)
    assert told == [[1], "n1", [4]]

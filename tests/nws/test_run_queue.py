"""Reading who wants to run: /proc as recorded, hostile and large, below a made root."""

import errno

import pytest

from nws import (
    MAX_THREADS,
    NEW_SESSION,
    Runnable,
    RunQueueReader,
    RunQueueSample,
    SchedulingGroup,
    averaged,
    read_file,
    weight_of_niceness,
)

STAT = (
    "{tid} ({name}) {state} 1 {tid} {tid} 0 -1 {flags} 105 0 0 0 0 0 0 0 20 {nice} {threads} 0 81973 "
    "3133440 415 18446744073709551615 94 94 140 0 0 0 0 0 0 0 0 0 17 {cpu} 0 {policy} 0 0 0"
)
STATUS = "Name:\tspin\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"
V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def thread(
    pid, tid=None, state="R", cpus="0-3", nice=0, flags=4194304, threads=1, policy=0, **more
):
    """Return the files of one thread; `cgroup` and `autogroup` are the process's."""
    tid = tid or pid
    folder = f"proc/{pid}/task/{tid}"
    name = "a) R (b"
    stat = STAT.format(
        tid=tid,
        name=name,
        state=state,
        flags=flags,
        nice=nice,
        threads=threads,
        cpu=0,
        policy=policy,
    )
    files = {f"{folder}/stat": stat, f"{folder}/status": STATUS.format(cpus=cpus)}
    return files | {f"proc/{pid}/{key}": text for key, text in more.items()}


def machine(*threads, running=99, mounts=V1, autogroups=1, **more):
    files = {
        "proc/loadavg": f"1.5 1.0 0.5 {running}/999 123\n",
        "proc/self/mountinfo": mounts,
        "proc/self/cgroup": "1:cpu:/\n0::/\n",
        "proc/self/stat": STAT.format(
            tid=1, name="me", state="R", flags=0, nice=5, threads=1, cpu=0, policy=0
        ),
        "proc/sys/kernel/sched_autogroup_enabled": f"{autogroups}\n",
        "sys/fs/cgroup/cpu/release_agent": "",
        "sys/fs/cgroup/cpu/cpu.shares": "1024",
        **more,
    }
    for one in threads:
        files |= one
    return files


def groups_of(root, pid=10):
    (found,) = [RunQueueReader(root, own=0).look().threads[pid].groups]
    return found


def test_a_session_is_a_group_where_the_kernel_makes_autogroups(tree):
    files = thread(10, cgroup="1:cpu:/\n0::/\n", autogroup="/autogroup-77 nice 0\n")
    assert groups_of(tree(machine(files))) == (SchedulingGroup("/autogroup-77"),)
    niced = thread(10, cgroup="1:cpu:/\n", autogroup="/autogroup-77 nice 10\n")
    assert groups_of(tree(machine(niced)))[0].weight == weight_of_niceness(10)
    assert groups_of(tree(machine(files, autogroups=0))) == ()
    assert (
        groups_of(tree(machine(thread(10, cgroup="0::/\n", autogroup="/autogroup-0 nice 0\n"))))
        == ()
    )


def test_a_control_group_with_a_weight_takes_the_place_of_the_autogroup(tree):
    box = "sys/fs/cgroup/cpu/box"
    files = thread(10, cgroup="3:cpu,cpuacct:/box\n", autogroup="/autogroup-77 nice 0\n")
    quota = {f"{box}/cpu.cfs_quota_us": "5000", f"{box}/cpu.cfs_period_us": "10000"}
    root = tree(machine(files, **{f"{box}/cpu.shares": "2048"}, **quota))
    assert groups_of(root) == (SchedulingGroup("/box", 2048.0, 0.5, 0.01),)


def test_slices_are_read_down_to_where_the_controller_ends(tree):
    base = "sys/fs/cgroup"
    path = "user.slice/user-1000.slice/session-3.scope"
    files = thread(10, cgroup=f"0::/{path}\n", autogroup="/autogroup-77 nice 0\n")
    levels = {
        f"{base}/user.slice/cpu.weight": "200",
        f"{base}/user.slice/cpu.max": "max 100000",
        f"{base}/user.slice/user-1000.slice/cpu.weight": "100",
        f"{base}/user.slice/user-1000.slice/cpu.max": "150000 100000",
    }
    root = tree(machine(files, mounts=V2, **levels))
    assert groups_of(root) == (
        SchedulingGroup("/user.slice", 2048.0),
        SchedulingGroup("/user.slice/user-1000.slice", 1024.0, 1.5),
    )


def test_without_a_controller_below_the_root_sessions_are_groups(tree):
    files = thread(10, cgroup="0::/user.slice\n", autogroup="/autogroup-4 nice 0\n")
    assert groups_of(tree(machine(files, mounts=V2))) == (SchedulingGroup("/autogroup-4"),)


def test_ours_will_be_in_a_session_of_its_own_or_in_the_control_group_that_we_are_in(tree):
    reader = RunQueueReader(tree(machine()), own=0)
    assert reader.own_class().groups == (SchedulingGroup(NEW_SESSION),)
    tree({"proc/sys/kernel/sched_autogroup_enabled": "0\n"})
    assert reader.own_class() == Runnable(frozenset(), weight_of_niceness(5))
    tree({"proc/self/cgroup": "1:cpu:/job\n", "sys/fs/cgroup/cpu/job/cpu.shares": "512\n"})
    assert reader.own_class().groups == (SchedulingGroup("/job", 512.0),)


def test_niceness_policy_and_the_kernels_own_make_the_weight(tree):
    plain = {"cgroup": "0::/\n", "autogroup": "/autogroup-7 nice 0\n"}
    root = tree(
        machine(
            thread(10, nice=10, **plain),
            thread(11, policy=5, **plain),
            thread(12, nice=-20, flags=69238880, **plain),
            thread(13, state="S", **plain),
            thread(14, cpus="1,3", **plain),
        )
    )
    found = RunQueueReader(root, own=0).look().threads
    assert {pid: one.weight for pid, one in found.items()} == {
        10: weight_of_niceness(10),
        11: 3.0,
        12: 1024.0,
        14: 1024.0,
    }
    assert (found[12].groups, found[14].allowed) == ((), {1, 3})


def test_all_threads_of_a_process_are_looked_at_and_our_own_process_is_not(tree):
    files = [thread(10, threads=3), thread(10, 11, threads=3), thread(10, 12, "S", threads=3)]
    root = tree(machine(*files, thread(20)))
    assert set(RunQueueReader(root, own=20).look().threads) == {10, 11}


def test_a_process_that_ends_while_it_is_read_does_not_want_to_run(tree):
    root = tree(machine(thread(10, threads=2)))
    (root / "proc/11").mkdir()  # its task directory is gone already
    (root / "proc/12/task/12").mkdir(parents=True)  # and so is this one's stat
    (root / "proc/10/task/13").mkdir()  # a thread of a living one
    tree({"proc/14/task/14/stat": "14 (half", "proc/15/task/15/stat": ""})
    assert set(RunQueueReader(root, own=0).look().threads) == {10}


def test_groups_that_cannot_be_read_are_counted_and_taken_for_groups_of_their_own(tree):
    look = RunQueueReader(tree(machine(thread(10), thread(11))), own=0).look()
    assert look.unread == 2
    assert {one.groups[0].name for one in look.threads.values()} == {"process 10", "process 11"}


def test_processes_that_are_hidden_are_those_that_the_kernel_counts_and_nobody_finds(
    tree,
):
    proc = "22 21 0:20 / /proc rw - proc proc rw,hidepid=invisible\n"
    refused = []

    def read(path):
        if refused and "/proc/10/" in path:
            raise PermissionError(errno.EACCES, "not yours", path)
        return read_file(path)

    root = tree(machine(thread(10), running=4, mounts=V1 + proc))
    reader = RunQueueReader(root, own=0, read=read)
    look = reader.look()
    assert (look.running, look.unseen, look.complete) == (3, 2, True)
    assert reader.hides_processes() == "hidepid=invisible"
    refused.append(10)
    assert reader.look().unseen == 3


@pytest.mark.parametrize("options", ["rw,hidepid=0", "rw", "rw,gid=4,hidepid=off"])
def test_a_proc_that_hides_nothing_says_so(tree, options):
    proc = f"22 21 0:20 / /proc rw - proc proc {options}\n"
    assert RunQueueReader(tree(machine(mounts=V1 + proc)), own=0).hides_processes() == ""


class CountedFiles(list):
    """Reads files, and lists their paths."""

    def read(self, path):
        self.append(path)
        return read_file(path)


def test_a_look_at_many_processes_opens_a_bounded_number_of_files_and_the_next_goes_on(
    tree,
):
    asleep = [thread(pid, state="S") for pid in range(100, 340)]
    root = tree(machine(*asleep, thread(350), running=2))
    opened = CountedFiles()
    reader = RunQueueReader(root, own=0, most_files=60, read=opened.read)
    looks = []
    while not looks or not looks[-1].threads:
        opened.clear()
        looks.append(reader.look())
        assert len(opened) <= 70
    assert [look.complete for look in looks] == [False] * (len(looks) - 1) + [True]
    assert len(looks) == 5
    opened.clear()
    assert set(reader.look().threads) == {350}  # it ran lately: nobody else is asked
    assert len(opened) < 10


def test_a_new_process_is_looked_at_before_those_that_slept_the_last_time(tree):
    asleep = [thread(pid, state="S") for pid in range(100, 340)]
    root = tree(machine(*asleep, running=3))
    reader = RunQueueReader(root, own=0, most_files=60)
    for _ in range(5):  # now all were looked at
        assert reader.look().threads == {}
    tree(thread(350) | thread(50))
    assert set(reader.look().threads) == {50, 350}


def test_a_sleeper_that_wakes_is_found_however_many_processes_are_new_at_each_look(tree):
    asleep = [thread(pid, state="S") for pid in range(100, 130)]
    root = tree(machine(*asleep, thread(200, state="S"), running=2))
    reader = RunQueueReader(root, own=0, most_files=60)
    for _ in range(2):  # now all were looked at
        assert reader.look().threads == {}
    tree(thread(200))
    for first in (1000, 2000):
        for pid in range(first, first + 80):
            tree(thread(pid, state="S"))
        found = reader.look().threads
        if found:
            break
    assert set(found) == {200}


def test_a_process_of_very_many_threads_does_not_stop_the_look(tree):
    crowd = [thread(10, tid, "S", threads=1_000_000) for tid in range(10, 700)]
    root = tree(machine(*crowd, thread(2000), running=2))
    opened = CountedFiles()
    look = RunQueueReader(root, own=0, read=opened.read).look()
    assert set(look.threads) == {2000}
    assert len(opened) < MAX_THREADS + 20


def test_nobody_is_looked_for_where_nobody_wants_to_run(tree):
    root = tree(machine(*(thread(pid, state="S") for pid in range(10, 60)), running=1))
    opened = CountedFiles()
    assert RunQueueReader(root, own=0, read=opened.read).look().threads == {}
    assert len(opened) < 5


def test_looks_are_averaged_thread_by_thread():
    one, other = Runnable(frozenset({0})), Runnable(frozenset({1}))
    looks = [RunQueueSample({10: one}, 3), RunQueueSample({10: one, 11: other}, 3)]
    threads = averaged(looks, frozenset(range(2)), 10)
    assert [thread.active for thread in threads] == [1.0, 0.5, 1.0]
    assert threads[2].groups == (SchedulingGroup("unseen 0"),)
    assert len(averaged(looks, frozenset(range(2)), 1)) == 1

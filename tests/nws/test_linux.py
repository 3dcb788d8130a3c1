"""The kernel's texts, as recorded on machines with cgroups of version 1, 2 and both."""

import pytest

from nws import (
    InputError,
    ThreadState,
    allowed_cpus,
    available_memory,
    cpu_quota,
    parse_allowed_cpus,
    parse_available_memory,
    parse_cpu_list,
    parse_groups,
    parse_memory,
    parse_mounts,
    parse_quota,
    parse_running,
    parse_thread,
)

STAT = (
    "{pid} ({name}) {state} 3609 3609 2486 0 -1 4194304 105 0 0 0 0 0 0 0 20 {nice} 1 0 81973 "
    "3133440 415 18446744073709551615 94 94 140 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0 0 0 0"
)
STATUS = "Name:\tspin\nCpus_allowed:\t3\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0\n"

MOUNTS_V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
"""
GROUPS_V1 = "4:memory:/lab/ada\n3:cpu,cpuacct:/lab/ada\n0::/\n"
MOUNTS_V2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
GROUPS_V2 = "0::/lab.slice/ada.scope\n"
# A container without a cgroup namespace: its own group is what it sees at the mount point.
MOUNTS_CONTAINER = "29 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"


def test_running_threads_are_counted_by_the_kernel():
    assert parse_running("0.01 0.06 0.01 1/84 3618\n") == 1


def test_a_thread_may_call_itself_anything():
    name = "a) R (b c"
    stat = STAT.format(pid=7, name=name, state="S", nice=-5, cpu=1)
    assert parse_thread(stat) == ThreadState("S", nice=-5, cpu=1)


def test_cpu_lists_are_read_in_the_kernels_notation():
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("\n") == frozenset()
    assert parse_allowed_cpus(STATUS.format(cpus="0-1")) == {0, 1}


def test_available_memory_is_not_free_memory():
    meminfo = "MemTotal:  24684096 kB\nMemFree:  455076 kB\nMemAvailable:  24392632 kB\n"
    assert parse_available_memory(meminfo) == 24392632 * 1024


def test_a_text_without_the_line_is_refused():
    with pytest.raises(InputError) as raised:
        parse_available_memory("MemFree: 1 kB\n")
    assert (raised.value.code, raised.value.fields["value"]) == ("line-missing", "MemAvailable:")


def test_mounts_and_groups_are_found_among_the_others():
    mounts = parse_mounts(MOUNTS_V1)
    assert [(str(mount.point), mount.version) for mount in mounts] == [
        ("/sys/fs/cgroup/cpu", 1),
        ("/sys/fs/cgroup/memory", 1),
        ("/sys/fs/cgroup/unified", 2),
    ]
    assert "cpuacct" in mounts[0].controllers
    assert str(parse_groups(GROUPS_V1)["cpu"]) == "/lab/ada"


def test_group_beside_the_mounted_one_is_not_taken_for_a_group_below_it(tree):
    root = tree(
        {
            "proc/self/mountinfo": MOUNTS_CONTAINER,
            "proc/self/cgroup": "0::/docker/abcdef\n",
            "sys/fs/cgroup/def/cpu.max": "10000 100000\n",
            "sys/fs/cgroup/cpu.max": "75000 100000\n",
        }
    )
    assert cpu_quota(root) == 0.75


def test_mount_point_with_a_space_is_read_as_the_kernel_escapes_it():
    (mount,) = parse_mounts("9 1 0:2 /a\\134b /mnt/my\\040groups rw - cgroup2 cgroup rw\n")
    assert (str(mount.point), str(mount.group)) == ("/mnt/my groups", "/a\\b")


def test_lines_that_are_no_mounts_and_no_groups_are_passed_over():
    assert parse_mounts("\ncgroup2\n1 2 - cgroup2 x rw\n - \n") == ()
    assert parse_groups("\n0\n0:\nnonsense\n") == {}


@pytest.mark.parametrize("text", ["0-99999999999", "3-1", "a", "1,,2", "0-8192"])
def test_hostile_cpu_list_is_refused(text):
    with pytest.raises(InputError) as raised:
        parse_cpu_list(text)
    assert raised.value.code in {"cpu-list-invalid", "value-range"}


@pytest.mark.parametrize(
    ("quota", "period", "cpus"),
    [
        ("150000", "100000", 1.5),
        ("2000", "10000", 0.2),
        ("max", "100000", None),
        ("-1", "100000", None),
        ("", "100000", None),
    ],
)
def test_a_quota_is_a_number_of_cpus(quota, period, cpus):
    assert parse_quota(quota, period) == cpus


def test_an_unlimited_group_leaves_everything():
    assert parse_memory("max", "700", "", "inactive_file") is None
    assert parse_memory("9223372036854771712", "700", "", "total_inactive_file") is None
    assert parse_memory("", "0", "", "inactive_file") is None


def test_a_group_above_its_limit_leaves_nothing():
    assert parse_memory("1000", "1700", "inactive_file 200\n", "inactive_file") == 0.0


def test_version_1_limits_hold_all_the_way_up(tree):
    root = tree(
        {
            "proc/self/mountinfo": MOUNTS_V1,
            "proc/self/cgroup": GROUPS_V1,
            "sys/fs/cgroup/cpu/lab/ada/cpu.cfs_quota_us": "80000\n",
            "sys/fs/cgroup/cpu/lab/ada/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/lab/cpu.cfs_quota_us": "5000\n",
            "sys/fs/cgroup/cpu/lab/cpu.cfs_period_us": "10000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/memory/lab/ada/memory.limit_in_bytes": "4096000\n",
            "sys/fs/cgroup/memory/lab/ada/memory.usage_in_bytes": "3000000\n",
            "sys/fs/cgroup/memory/lab/ada/memory.stat": "cache 9\ntotal_inactive_file 1000000\n",
            "sys/fs/cgroup/memory/lab/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    assert cpu_quota(root) == 0.5
    assert available_memory(root) == 4096000 - 2000000


def test_version_2_limits_hold_all_the_way_up(tree):
    root = tree(
        {
            "proc/self/mountinfo": MOUNTS_V2,
            "proc/self/cgroup": GROUPS_V2,
            "sys/fs/cgroup/lab.slice/ada.scope/cpu.max": "max 100000\n",
            "sys/fs/cgroup/lab.slice/cpu.max": "2000 10000\n",
            "sys/fs/cgroup/lab.slice/ada.scope/memory.max": "max\n",
            "sys/fs/cgroup/lab.slice/memory.max": "1000000\n",
            "sys/fs/cgroup/lab.slice/memory.current": "400000\n",
            "sys/fs/cgroup/lab.slice/memory.stat": "anon 1\ninactive_file 100000\n",
            "sys/fs/cgroup/lab.slice/ada.scope/cpuset.cpus.effective": "1\n",
        }
    )
    assert cpu_quota(root) == 0.2
    assert available_memory(root) == 700000
    assert allowed_cpus(root) == {1}


def test_a_container_sees_its_own_group_at_the_mount_point(tree):
    root = tree(
        {
            "proc/self/mountinfo": MOUNTS_CONTAINER,
            "proc/self/cgroup": "0::/docker/abc/job\n",
            "sys/fs/cgroup/job/cpu.max": "75000 100000\n",
        }
    )
    assert cpu_quota(root) == 0.75


def test_a_group_outside_of_what_is_mounted_is_asked_at_the_mount_point(tree):
    root = tree(
        {
            "proc/self/mountinfo": MOUNTS_CONTAINER,
            "proc/self/cgroup": "0::/../other\n",
            "sys/fs/cgroup/cpu.max": "75000 100000\n",
        }
    )
    assert cpu_quota(root) == 0.75


def test_a_machine_without_cgroups_has_no_limits(tree):
    root = tree({"proc/self/cgroup": "0::/\n"})
    assert (cpu_quota(root), available_memory(root), allowed_cpus(root)) == (None, None, None)

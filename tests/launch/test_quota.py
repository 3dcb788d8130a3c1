import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch import Controller, Quotas, find, limits, quota


@given(st.floats(0.001, 512))
def test_a_quota_is_the_share_asked_for(cpus):
    given_, period = limits(cpus)
    assert given_ >= 1000
    assert 10_000 <= period <= 1_000_000
    assert given_ / period == pytest.approx(cpus, rel=0.01)


def proc(tmp_path, groups, mounts):
    """A /proc/self that says these groups and mounts."""
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts.format(tmp=tmp_path))
    return tmp_path


def test_version_1_is_found_where_cpu_is_mounted(tmp_path):
    #   tmp/cpu            the controller
    #     `- mine          the group this process is in
    (tmp_path / "cpu" / "mine").mkdir(parents=True)
    found = find(
        proc(
            tmp_path,
            "4:memory:/x\n1:cpu,cpuacct:/mine\n0::/\n",
            "30 1 0:1 / {tmp}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        )
    )
    # a directory stands in for the kernel: the files it would make stay behind in the probe
    assert found == Controller(tmp_path / "cpu" / "mine", 1)


def test_version_2_is_taken_from_the_nearest_delegated_group(tmp_path):
    #   tmp/v2              not delegated
    #     `- user           cpu is in its subtree_control
    #          `- session   this process
    (tmp_path / "v2" / "user" / "session").mkdir(parents=True)
    (tmp_path / "v2" / "user" / "cgroup.subtree_control").write_text("cpu memory\n")
    (tmp_path / "v2" / "user" / "cgroup.procs").write_text("")
    mounts = "30 1 0:1 / {tmp}/v2 rw - cgroup2 cgroup2 rw\n"
    found = find(proc(tmp_path, "0::/user/session\n", mounts))
    assert found == Controller(tmp_path / "v2" / "user", 2)


def test_reason_without_quotas_names_the_group(tmp_path):
    (tmp_path / "v2").mkdir()
    mounts = "30 1 0:1 / {tmp}/v2 rw - cgroup2 cgroup2 rw\n"
    assert find(proc(tmp_path, "0::/\n", mounts)).startswith(f"{tmp_path}/v2: ")
    assert isinstance(find(tmp_path / "nowhere"), str)


def test_a_host_without_a_quota_is_reported():
    quotas = Quotas.plan({"h2": 0.4}, "j", controller=lambda: "read-only")
    (warning,) = quotas.warnings
    assert warning.startswith("h2: ")
    assert "read-only" in warning
    assert quotas.joined("h2") == ""
    quotas.create()


def test_no_quota_is_looked_for_where_none_is_needed():
    assert Quotas.plan({}, "j", controller=lambda: pytest.fail("looked")) == Quotas()


def test_a_group_that_is_there_already_is_an_error(tmp_path):
    (tmp_path / "apples-j-h2").mkdir()
    controller = Controller(tmp_path, 1)
    quotas = Quotas(controller, {"h2": 0.4}, {"h2": tmp_path / "apples-j-h2"})
    with pytest.raises(LaunchError) as raised:
        quotas.create()
    assert raised.value.code == "quota-refused"
    assert raised.value.fields == {"host": "h2", "value": 0.4}


def test_groups_nobody_is_in_are_swept_when_they_are_old(tmp_path):
    for name in ("apples-old-h1", "apples-used-h2", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "apples-used-h2" / "process").touch()  # rmdir refuses it, as the kernel would
    Controller(tmp_path, 1).sweep(older_than=60)
    assert len(list(tmp_path.iterdir())) == 3
    Controller(tmp_path, 1).sweep(older_than=-1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["apples-used-h2", "other"]


@pytest.mark.hardware
@pytest.mark.skipif(quota.writable() is not None, reason=f"no CPU quotas: {quota.writable()}")
def test_the_kernel_takes_the_quota():
    controller = find()
    assert isinstance(controller, Controller)
    group = controller.create(f"apples-test-{os.getpid()}", 0.4)
    try:
        file = group / ("cpu.max" if controller.version == 2 else "cpu.cfs_quota_us")
        assert file.read_text().split()[0] == "4000"
    finally:
        quota.remove(group)
    assert not Path(group).exists()

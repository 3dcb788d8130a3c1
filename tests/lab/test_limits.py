"""Limits of a lab beside quota and memory: a load on a schedule, CPUs, a host's own link, links changed later."""

import json
import os
from statistics import median

import labs
import pytest
from commands import command

from apples import lab as emulation

pytestmark = pytest.mark.lab

START, STOP, WATCHED = 1.5, 3.0, 4.5
CPU = max(os.sched_getaffinity(0))
LIMITED = f"""
name = "limited"
ssh = false
[[site]]
name = "here"
[[site]]
name = "there"
bandwidth = 8e6
[[host]]
name = "busy"
site = "here"
cpu = 0.4
cpus = [{CPU}]
[[host]]
name = "slow"
site = "here"
bandwidth = 1e6
[[host]]
name = "far"
site = "there"
[[host]]
name = "narrow"
site = "there"
cpu = 0.4
[[load]]
host = "busy"
start = {START}
stop = {STOP}
"""
WATCH = """
import sys, time
end, before, own = float(sys.argv[1]), time.monotonic(), time.process_time()
while before < end:
    while time.monotonic() < before + 0.2: pass
    after, spent = time.monotonic(), time.process_time()
    print(before, after, (spent - own) / (after - before))
    before, own = after, spent
"""
STRAY = """
import os, sys
try: os.sched_setaffinity(0, map(int, sys.argv[1:]))
except OSError: pass
print(sorted(os.sched_getaffinity(0)))
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A lab whose hosts have those limits, and the shares that a process on 'busy' had since it came up."""
    folder = tmp_path_factory.mktemp("limited")
    (folder / "lab.toml").write_text(LIMITED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        made = emulation.up(folder / "lab.toml", speeds=lambda *_: {})
        place = emulation.labs() / made.name
    yield made
    emulation.down(place)
    assert labs.belongings(place) == set()


@pytest.fixture
def shares(limited):
    """Return the shares of a process on 'busy' between two moments after up, a value each fifth of a second."""
    printed = labs.python(limited, "busy", WATCH, str(limited.zero + WATCHED)).splitlines()
    spells = [[float(word) for word in line.split()] for line in printed]
    return lambda start, stop: [
        share
        for begun, ended, share in spells
        if limited.zero + start < begun and ended < limited.zero + stop
    ]


@pytest.mark.hardware
def test_a_load_takes_half_of_a_host_from_its_start_to_its_stop(shares):
    late = 0.3  # the process that competes has to be started, and ended
    before, while_on, after = (
        shares(0, START),
        shares(START + late, STOP),
        shares(STOP + late, WATCHED),
    )
    assert median(while_on) == pytest.approx(0.2, abs=0.06)
    assert median(after) == pytest.approx(0.4, abs=0.06)
    if not before:
        pytest.skip(f"this machine took more than {START} s to begin to watch")
    assert median(before) == pytest.approx(0.4, abs=0.06)


def test_a_host_with_a_quota_has_as_many_cpus_as_begun_cores(limited):
    assert len(json.loads(labs.python(limited, "narrow", STRAY, *map(str, range(64))))) == 1


def test_a_process_never_leaves_the_cpus_of_its_host(limited):
    own = os.sched_getaffinity(0)
    assert labs.python(limited, "busy", STRAY, *map(str, own)) == f"[{CPU}]"
    if len(own) > 1:
        assert labs.python(limited, "busy", STRAY, *map(str, own - {CPU})) == f"[{CPU}]"
    assert labs.python(limited, "far", STRAY) == str(sorted(own))


@pytest.mark.hardware
@pytest.mark.parametrize(("source", "target"), [("slow", "busy"), ("busy", "slow")])
def test_a_hosts_own_link_has_its_rate_both_ways(limited, source, target):
    assert labs.steady_rate(limited, source, target, 1e6) == pytest.approx(1e6, rel=0.15)


@pytest.mark.hardware
def test_a_link_that_is_shaped_anew_has_the_new_rate_both_ways(limited, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(limited.hosts.parents[3]))
    done = command("apples", "lab", "shape", "there", "2e6")
    assert done.code == 0, done.err
    assert labs.steady_rate(limited, "busy", "far", 2e6) == pytest.approx(2e6, rel=0.15)
    assert labs.steady_rate(limited, "far", "busy", 2e6) == pytest.approx(2e6, rel=0.15)
    assert command("apples", "lab", "shape", "there", "4e6", "--lab", "limited").code == 0
    assert labs.steady_rate(limited, "busy", "far", 4e6) == pytest.approx(4e6, rel=0.15)

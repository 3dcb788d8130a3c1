"""Runs over ssh in a lab: hosts with names, addresses, quotas and shaped links of their own."""

import json
from pathlib import Path

import labs
import pytest

from apples import Coordinator, load_information
from apples.agent import launch_plan, sequential
from apples.errors import ApplesError
from apples.launch import SlurmActuator, SshActuator
from apples.resources import Allocation, Schedule
from apples.weather import SensingContext
from blueprints import blocked

pytestmark = pytest.mark.lab
EXAMPLE = Path(__file__).parents[3] / "examples" / "jacobi2d"
FAKE = Path(__file__).parents[1] / "programs" / "fake.py"
FILES = (EXAMPLE / "template.toml", EXAMPLE / "user.toml")


def loaded(lab, **options):
    return load_information(lab.hosts, *FILES, **{"weather": "static", **options})


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.mpi
def test_borders_cross_the_real_links_and_the_result_is_the_sequential_one(lab):
    information = loaded(lab, settings={"grid": 400, "iterations": 30})
    talk = []
    execution = Coordinator(information, SshActuator(talk=talk.append)).execute(blocked)
    before = sent(lab)
    outcome = execution.outcome()
    assert talk == []
    assert sequential(information).check(outcome.iterations, outcome.sha256) is True
    assert {times.host for times in outcome.hosts} == {"ada", "bob", "far"}
    assert sent(lab) - before > 0.9 * outcome.iterations * 400 * 8  # not through shared memory


def sent(lab):
    """Bytes that far, which is a site of its own, has sent."""
    counters = Path(f"/proc/{lab.machine('far').pid}/net/dev").read_text().splitlines()[2:]
    words = [line.replace(":", " ").split() for line in counters]
    return sum(int(one[9]) for one in words if one[0] != "lo")


@pytest.mark.parametrize("actuator", [SshActuator, SlurmActuator])
def test_a_rank_beyond_its_hosts_memory_is_said_to_be(lab, tmp_path, actuator, monkeypatch):
    if actuator is SlurmActuator and not lab.slurm_conf:
        pytest.skip(labs.lacking(slurm=True))
    monkeypatch.setenv("SLURM_CONF", lab.slurm_conf or "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    template = f'name = "fake"\nprogram = ["{{python}}", "-S", "{FAKE}"]\n'
    template += '[parameters.how]\ndefault = "hungry"\n'
    template += "[parameters.grid]\ndefault = 30\n[parameters.iterations]\ndefault = 2\n"
    (tmp_path / "fake.toml").write_text(template)
    information = load_information(lab.hosts, tmp_path / "fake.toml", FILES[1], weather="static")
    ada, bob = (information.hosts[name] for name in ("ada", "bob"))  # bob has 256 MB
    schedule = Schedule((Allocation(ada, 20, "default"), Allocation(bob, 10, "default")))
    with pytest.raises(ApplesError) as raised:
        actuator().actuate(launch_plan(schedule, information)).outcome()
    fields = raised.value.fields
    assert (fields["host"], fields["signal"]) == ("bob", "SIGKILL")
    if (
        actuator is SshActuator
    ):  # Slurm reports it only with its own memory cgroups, which the lab has not
        assert "oom_kill 1" in fields["end"]


def test_uneven_ranks_land_exactly_where_they_were_planned(lab, tmp_path):
    (tmp_path / "records").mkdir()
    template = f'name = "fake"\nprogram = ["{{python}}", "-S", "{FAKE}"]\n'
    template += f'[parameters.record]\ndefault = "{tmp_path / "records"}"\n'
    template += "[parameters.grid]\ndefault = 30\n[parameters.iterations]\ndefault = 2\n"
    (tmp_path / "fake.toml").write_text(template)
    lines = [x for x in lab.hosts.read_text().splitlines() if not x.startswith("slots")]
    hosts = "\n".join(lines).replace('name = "bob"', 'name = "bob"\nslots = 3')
    (tmp_path / "hosts.toml").write_text(hosts)
    information = load_information(
        tmp_path / "hosts.toml", tmp_path / "fake.toml", FILES[1], weather="static"
    )
    ada, bob, far = (information.hosts[name] for name in ("ada", "bob", "far"))
    schedule = Schedule(
        tuple(Allocation(h, r, "default") for h, r in ((far, 5), (bob, 20), (ada, 5)))
    )
    SshActuator().actuate(launch_plan(schedule, information)).outcome()
    files = sorted((tmp_path / "records").iterdir(), key=lambda path: int(path.stem))
    assert [json.loads(path.read_text())["node"] for path in files] == [
        *("far", "bob", "bob", "bob", "ada")
    ]


@pytest.mark.hardware
def test_the_weather_of_a_lab_is_its_quotas_and_its_shaped_links(lab):
    talk = []
    sky = loaded(lab, weather="live", sensing=SensingContext(log=talk.append)).conditions.weather
    assert talk == []
    assert set(sky.cpu) == {"ada", "bob", "far"}
    for machine in lab.machines:
        assert sky.cpu[machine.name].value <= min(1.0, (machine.cpu or 1.0) * 1.1)
        assert sky.free_memory[machine.name].value <= (machine.memory or 1e15)
    for pair in (("ada", "far"), ("far", "ada"), ("bob", "far"), ("far", "bob")):
        assert sky.bandwidth[pair].value == pytest.approx(2e6, rel=0.3)
    assert sky.bandwidth["ada", "bob"].value > 10e6

"""`apples run`: for real on the sample, and what it says and learns around a run."""

import json
import os
from pathlib import Path

import pytest
from commands import EXAMPLE, command, files

from apples import Coordinator, RecordingActuator
from apples.agent.information import load_information
from apples.agent.launching import launch_plan
from apples.agent.session.planning import decide
from apples.agent.session.running import PreparedRun
from apples.agent.verification import Reference, sequential
from apples.launch.actuator import Execution, Outcome
from apples.storage import state
from blueprints import compile_time, minimum_execution_time
from nws import Forecast, Weather

SAMPLE = [
    word
    for name in ("hosts", "template", "user")
    for word in (f"--{name}", str(EXAMPLE / f"{name}.toml"))
]
SMALL = ["--set", "grid=200", "--set", "iterations=20"]
FAKE = Path(__file__).parents[1] / "launch" / "programs" / "fake.py"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))


def run(*options):
    return command("apples", "run", *SAMPLE, *SMALL, "--weather", "static", *options)


@pytest.mark.mpi
def test_the_sample_runs_on_several_hosts_and_equals_the_sequential_run_whatever_the_method():
    digests, hosts = set(), set()
    for blueprint in ("blocked", "single_host"):
        done = run("--json", "--blueprint", blueprint)
        assert done.code == 0, done.err
        document = done.document
        assert document["schema"] == "apples.run/1"
        assert document["verified"] is True
        execution = document["execution"]
        assert execution["iterations"] == 20
        assert execution["predicted_seconds"] == document["plan"]["chosen"]["execution_seconds"]
        assert execution["iteration_seconds"] == pytest.approx(execution["measured_seconds"] / 20)
        assert [h["rows"] for h in execution["hosts"]] == document["plan"]["chosen"]["rows"]
        digests.add(document["result_sha256"])
        hosts.add(len(execution["hosts"]))
    assert len(digests) == 1
    assert hosts == {1, 4}


def test_a_dry_run_prints_the_command_and_the_task_and_starts_nothing(tmp_path):
    document = run("--dry-run", "--json").document
    task = json.loads(document["command"]["files"]["task.json"])
    assert [piece["rows"] for piece in task["partition"]] == document["plan"]["chosen"]["rows"]
    assert document["execution"] is None
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (
            ["--actuator", "cloud"],
            2,
            (
                "apples: --actuator 'cloud': known are local, recording, slurm, ssh; "
                "your own is module:name or file.py:name"
            ),
        ),
        (["--output", "/dev/null/x"], 2, "apples: --output /dev/null/x: Not a directory"),
        (["--set", "grid=0"], 2, "--set: grid: must be at least 1 (is 0)"),
    ],
)
def test_a_bad_option_starts_nothing_and_is_one_clear_line(options, code, said):
    done = run(*options)
    assert (done.code, done.out, done.err) == (code, "", said + "\n")


def test_no_plan_ends_with_3(tmp_path):
    given = files(tmp_path, hosts='[[host]]\nname = "a"\nfree_memory = 1000\n')
    done = command("apples", "run", *given, "--weather", "static")
    assert done.code == 3
    assert done.err.startswith(
        "apples: no feasible plan: a offers 1.00 kB, a strip of one row needs"
    )


# --------------------------------------------------- around a run, with a stand-in for it
class Done(Execution):
    """A run that is over."""

    def __init__(self, outcome):
        self._outcome = outcome

    def monitor(self):
        return iter(())

    def outcome(self):
        return self._outcome

    def cancel(self):
        pass


class Instant(RecordingActuator):
    """Runs everything in the time that was predicted, times `late`."""

    def __init__(self, late=1.0):
        super().__init__()
        self.late = late

    def actuate(self, plan):
        super().actuate(plan)
        seconds = self.late * plan.iteration_seconds
        return Done(Outcome(20, 20 * seconds, 0.1, (), sha256="a" * 64))


def prepared(blueprint, late=1.0):
    information = load_information(
        *(EXAMPLE / f"{n}.toml" for n in ("hosts", "template", "user")),
        settings={"grid": 200, "iterations": 20},
    )
    sky = Weather(cpu={"ada": Forecast(0.5, 0.05, "mean", 9, 0.0)})
    coordinator = Coordinator(information.with_weather(sky), Instant(late))
    plan = decide("x", blueprint, coordinator)
    assert plan.refusal is None
    return plan, coordinator


def learned():
    return list(Path(state.directory()).glob("*.json"))


def test_a_run_is_learned_from_whatever_method_chose_it_and_only_if_asked():
    reference = Reference(20, "a" * 64)
    PreparedRun(*prepared(minimum_execution_time), learn=False).execute(reference=reference)
    assert learned() == []
    PreparedRun(*prepared(compile_time)).execute(reference=reference)
    assert len(learned()) == 1


def test_a_compile_time_plan_is_started_under_this_moments_weather():
    plan, coordinator = prepared(compile_time)
    PreparedRun(plan, coordinator, verify=False, learn=False).execute()
    schedule = coordinator.decision_log.chosen.schedule
    assert coordinator.actuator.plans[-1] == launch_plan(schedule, coordinator.information)
    assert coordinator.information.conditions.measured(coordinator.information.hosts["ada"])


def test_a_run_whose_lesson_cannot_be_kept_is_reported_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    plan, coordinator = prepared(minimum_execution_time)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    said = []
    result = PreparedRun(plan, coordinator, verify=False).execute(talk=said.append)
    assert result.outcome.iterations == 20
    assert "nothing was learned from this run" in said[0]


def test_a_different_digest_is_not_verified():
    plan, coordinator = prepared(minimum_execution_time)
    other = Reference(20, "b" * 64)
    result = PreparedRun(plan, coordinator, learn=False).execute(reference=other)
    assert result.verified is False


@pytest.fixture
def fake(tmp_path):
    """The pool of the test program, on hosts of a platform of their own."""

    def make(how, platforms='"any"'):
        template = (
            f'name = "fake"\nprogram = ["{{python}}", "-S", "{FAKE}"]\n'
            "[parameters.grid]\ndefault = 30\n[parameters.iterations]\ndefault = 2\n"
            f'[parameters.how]\ndefault = "{how}"\n'
            f'[[implementation]]\nname = "default"\nplatforms = {platforms}\n'
        )
        hosts = '[[host]]\nname = "ada"\nplatform = "x86_64"\nseconds_per_point = 1e-9\n'
        files(tmp_path, hosts=hosts, template=template)
        return load_information(
            *(tmp_path / f"{n}.toml" for n in ("hosts", "template", "user")), settings={}
        )

    return make


@pytest.mark.mpi
def test_the_reference_is_computed_by_what_runs_on_the_platform_of_the_hosts(fake):
    assert sequential(fake("", platforms='["x86_64"]')).iterations == 2

"""Two coupled MPI tasks with an intercommunicator, each on hosts of its own: the bits of one process."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command
from sshd import Sshd, missing

from apples import ApplicationError, UsageError, VerificationError
from apples.applications import PipelineSpec, new, run_pipeline

MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent)
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(MPIEXEC is None, reason="the wheel's mpiexec is not installed"),
]
SMALL = {"size": "24", "steps": "21"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    new("pipe", tmp_path, kind="pipeline")
    monkeypatch.chdir(tmp_path / "pipe")
    return tmp_path / "pipe"


def edited(name, old, new_):
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new_))


@pytest.mark.more
@pytest.mark.parametrize("unit", [1, 4, 21])
@pytest.mark.usefixtures("folder")
def test_tasks_on_hosts_of_their_own_come_to_the_bits_of_one_process(unit):
    done = run_pipeline(PipelineSpec(settings=SMALL, unit=unit)).execution
    assert done.plan.mode == "pipelined"
    assert (done.plan.unit, done.verified) == (unit, True)
    assert {len(rows) for rows in done.plan.rows.values()} <= {1, 2}


@pytest.mark.usefixtures("folder")
def test_by_hand_any_even_number_of_ranks_comes_to_the_same():
    words = [w for name, value in SMALL.items() for w in ("--set", f"{name}={value}")]
    words += ["--set", "rows=48", "--set", "unit=5", "--set", "iterations=6"]
    said = [
        subprocess.run(
            [*start, sys.executable, "program.py", *words], capture_output=True, text=True, check=True
        ).stdout.split("sha256 ")[1]
        for start in ([], [MPIEXEC, "-n", "2"], [MPIEXEC, "-n", "6"])
    ]  # fmt: skip
    assert len(set(said)) == 1


@pytest.mark.usefixtures("folder")
def test_the_command_plans_and_runs_and_the_agent_is_short():
    planned = command("apples", "plan", "--json").document
    assert planned["execution"] is None
    words = [f"--set={name}={value}" for name, value in SMALL.items()]
    done = command("apples", "run", "--json", *words).document["execution"]
    assert (done["mode"], done["verified"]) == ("pipelined", True)
    checked = command("hat", "check", "pipeline.toml")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.startswith("pipeline.toml: pipeline")
    assert len(Path("agent.py").read_text().splitlines()) <= 60


@pytest.mark.usefixtures("folder")
def test_a_result_that_depends_on_who_has_what_is_found_out():
    edited("program.py", "total += np.sqrt", "total += task.rank + np.sqrt")
    with pytest.raises(VerificationError) as raised:
        run_pipeline(PipelineSpec(settings=SMALL))
    assert raised.value.code == "result-differs"
    assert raised.value.fields["value"] != raised.value.fields["bound"]


@pytest.mark.usefixtures("folder")
def test_a_task_that_fails_ends_the_run_with_its_words():
    edited(
        "program.py",
        "    for power in range(2, 42):",
        "    raise ValueError('no field')\n    for power in ():",
    )
    with pytest.raises(ApplicationError) as raised:
        run_pipeline(PipelineSpec(settings=SMALL))
    assert raised.value.code == "program-failed"
    assert "no field" in str(raised.value)


@pytest.mark.usefixtures("folder")
def test_a_host_alone_does_both_tasks_in_turn():
    Path("hosts.toml").write_text('[[host]]\nname = "one"\nseconds_per_point = 1e-7\n')
    done = run_pipeline(PipelineSpec(settings=SMALL), verify=False).execution
    assert (done.plan.mode, done.verified) == ("alternating", None)


ALIKE = """
[[host]]
name = "one"
seconds_per_point = 1e-4
slots = {slots}
[[host]]
name = "two"
seconds_per_point = 1e-4
slots = {slots}
[default_link]
latency = 1e-5
bandwidth = {bandwidth}
"""
NOTED = """
def noted(act):
    def do(*given):
        begin = time.monotonic()
        found = act(*given)
        with open(f"{act.__name__}-{task.rank}", "a") as file:
            file.write(f"{begin} {time.monotonic()}\\n")
        return found
    return do


step, measure = noted(step), noted(measure)
with Task("""


def busy(folder, task):
    """Return when a task's ranks were at work: pairs of moments, in order."""
    lines = [line for file in folder.glob(f"{task}-*") for line in file.read_text().splitlines()]
    return sorted((float(begin), float(end)) for begin, end in map(str.split, lines))


@pytest.mark.more
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("unit", [0, 4])
def test_tasks_on_the_same_hosts_take_turns_and_come_to_the_bits_of_one_process(
    folder, slots, unit
):
    (folder / "hosts.toml").write_text(ALIKE.format(slots=slots, bandwidth="1e5"))
    edited("program.py", "with Task(", NOTED)
    done = run_pipeline(PipelineSpec(settings=SMALL, unit=unit), verify=False).execution
    assert done.plan.mode == "alternating"
    assert [list(rows) for rows in done.plan.rows.values()] == [["one", "two"]] * 2
    ranks = 2 * slots
    assert len([*folder.glob("step-*")]) == len([*folder.glob("measure-*")]) == ranks
    made, used = busy(folder, "step"), busy(folder, "measure")
    assert all(b <= c or d <= a for a, b in made for c, d in used)
    again = run_pipeline(PipelineSpec(settings=SMALL, unit=unit)).execution
    assert again.verified is True


@pytest.mark.usefixtures("folder")
def test_one_host_with_several_slots_has_ranks_of_both_tasks():
    Path("hosts.toml").write_text('[[host]]\nname = "a"\nslots = 3\nseconds_per_point = 1e-7\n')
    done = run_pipeline(PipelineSpec(settings=SMALL)).execution
    assert (done.plan.mode, done.verified) == ("alternating", True)


@pytest.mark.usefixtures("folder")
def test_what_a_plan_cannot_use_is_refused_with_the_file_and_what_it_assumes_is_said():
    for words, code, fields in (
        (
            ("--unit", "201"),
            "value-range",
            {"file": "pipeline.toml", "field": "unit", "value": 201},
        ),
        (
            ("--set", "steps=0"),
            "value-range",
            {"file": "pipeline.toml", "field": "items", "value": 0},
        ),
        (("--actuator", "shh"), "launcher-unknown", {"value": "shh"}),
        (
            ("--verify", "sample"),
            "value-unknown",
            {"option": "--verify", "known": ["full", "none"]},
        ),
        (
            ("--verify", "full", "--no-verify"),
            "option-conflict",
            {"options": ["--verify", "--no-verify"]},
        ),
    ):
        refused = command("apples", "run", "--dry-run", *words, "--json")
        assert (refused.code, refused.failure["code"]) == (2, code)
        assert fields.items() <= refused.failure["fields"].items()
    text = Path("hosts.toml").read_text()
    Path("hosts.toml").write_text(text[: text.index("[default_link]")])
    assumed = command("apples", "plan", "--json").document["assumed"]
    assert [line for line in assumed if "here" in line and "there" in line]


@pytest.mark.usefixtures("folder")
def test_weeks_by_an_assumed_speed_are_not_begun():
    Path("hosts.toml").write_text('[[host]]\nname = "a"\n')
    done = command("apples", "run", "--json")
    assert (done.code, done.failure["code"]) == (2, "speed-assumed")
    assert done.failure["fields"]["hosts"] == ["a"]
    for remedy in ("apples calibrate", "seconds_per_point"):
        assert remedy in done.failure["message"]


@pytest.mark.usefixtures("folder")
def test_a_speed_that_predicts_years_waits_no_longer_than_it_takes():
    """As where seconds are given for nanoseconds: poll takes no wait of more than 24 days."""
    Path("hosts.toml").write_text('[[host]]\nname = "a"\nseconds_per_point = 4e4\n')
    done = run_pipeline(PipelineSpec(settings=SMALL)).execution
    assert done.verified


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_started_is_refused():
    edited("pipeline.toml", 'program = ["{python}", "program.py"]', "")
    with pytest.raises(UsageError) as raised:
        run_pipeline(PipelineSpec())
    assert (raised.value.code, raised.value.fields["field"]) == ("field-missing", "program")
    edited("pipeline.toml", "size = 200", "size = 200\nunit = 3\n")
    edited("pipeline.toml", 'items = "steps"', 'items = "steps"\nprogram = ["x"]')
    with pytest.raises(UsageError) as raised:
        run_pipeline(PipelineSpec())
    assert (raised.value.code, raised.value.fields["field"]) == (
        "name-reserved",
        "parameters.unit",
    )


@pytest.mark.more
@pytest.mark.ssh
@pytest.mark.skipif(bool(missing()), reason=f"lacks {missing()}")
@pytest.mark.parametrize("mode", ["pipelined", "alternating"])
def test_tasks_on_other_machines_come_to_the_same(folder, mode):
    server = Sshd(folder.parent)
    try:
        text = server.host_list(3)
        # Hosts of a task that are slow to exchange its rows do not share it; slow to hand on, they take turns.
        point, latency, bandwidth = (
            ("1e-6", "1e-3", "1e9") if mode == "pipelined" else ("1e-4", "1e-5", "1e5")
        )
        text = text.replace("seconds_per_point = 1e-9", f"seconds_per_point = {point}")
        text = text.replace("latency = 1e-9", f"latency = {latency}").replace("1e12", bandwidth)
        (folder / "hosts.toml").write_text(text)
        done = run_pipeline(PipelineSpec(settings=SMALL, unit=5)).execution
    finally:
        server.close()
    assert (done.plan.mode, done.verified) == (mode, True)
    assert set().union(*done.plan.rows.values()) == {"h1", "h2", "h3"}

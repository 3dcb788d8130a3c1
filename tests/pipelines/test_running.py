"""Two coupled MPI tasks with an intercommunicator, each on hosts of its own: the bits of one process."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command
from sshd import Sshd, missing

from apples import ApplicationError, UsageError, VerificationError
from apples.pipelines import PipelineSpec, run_pipeline
from hat import new

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
    planned = command("apples", "pipeline", "--json").document
    assert planned["execution"] is None
    words = [f"--set={name}={value}" for name, value in SMALL.items()]
    done = command("apples", "pipeline", "--run", "--json", *words).document["execution"]
    assert (done["mode"], done["verified"]) == ("pipelined", True)
    assert command("hat", "check", "pipeline.toml").out == "pipeline.toml: pipeline, ok\n"
    assert len(Path("agent.py").read_text().splitlines()) <= 60


@pytest.mark.usefixtures("folder")
def test_a_result_that_depends_on_who_has_what_is_found_out():
    edited("program.py", "total += np.sqrt", "total += task.rank + np.sqrt")
    with pytest.raises(VerificationError, match="not that of the same program as one process"):
        run_pipeline(PipelineSpec(settings=SMALL))


@pytest.mark.usefixtures("folder")
def test_a_task_that_fails_ends_the_run_with_its_words():
    edited(
        "program.py",
        "    for power in range(2, 42):",
        "    raise ValueError('no field')\n    for power in ():",
    )
    with pytest.raises(ApplicationError, match="no field"):
        run_pipeline(PipelineSpec(settings=SMALL))


@pytest.mark.usefixtures("folder")
def test_a_host_alone_does_both_tasks_in_turn():
    Path("hosts.toml").write_text('[[host]]\nname = "one"\nseconds_per_point = 1e-7\n')
    done = run_pipeline(PipelineSpec(settings=SMALL), verify=False).execution
    assert (done.plan.mode, done.verified) == ("alternating", None)


@pytest.mark.usefixtures("folder")
def test_what_a_plan_cannot_use_is_refused_with_the_file_and_what_it_assumes_is_said():
    for words, said in {
        ("--unit", "201"): "pipeline.toml: unit: must be at most the 200 items (is 201)",
        ("--set", "steps=0"): "pipeline.toml: items: must be a whole number from 1",
        ("--actuator", "shh"): "--actuator 'shh': did you mean 'ssh'?",
        ("--verify", "sample"): "--verify 'sample': known are full, none",
        ("--verify", "full", "--no-verify"): "--verify full: contradicts --no-verify",
    }.items():
        refused = command("apples", "pipeline", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    text = Path("hosts.toml").read_text()
    Path("hosts.toml").write_text(text[: text.index("[default_link]")])
    assert "link between here and there: not given" in command("apples", "pipeline").out


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_started_is_refused():
    edited("pipeline.toml", 'program = ["{python}", "program.py"]', "")
    with pytest.raises(UsageError, match="program is missing"):
        run_pipeline(PipelineSpec())
    edited("pipeline.toml", "size = 200", "size = 200\nunit = 3\n")
    edited("pipeline.toml", 'items = "steps"', 'items = "steps"\nprogram = ["x"]')
    with pytest.raises(UsageError, match=r"parameters.unit: must be another name"):
        run_pipeline(PipelineSpec())
    edited("pipeline.toml", "\nunit = 3\n", "\n")
    Path("hosts.toml").write_text(
        '[[host]]\nname = "far"\naddress = "192.0.2.1"\nseconds_per_point = 1e-7\n'
    )
    with pytest.raises(UsageError, match=r"far is another machine: say --actuator ssh \(or"):
        run_pipeline(PipelineSpec())


@pytest.mark.ssh
@pytest.mark.skipif(bool(missing()), reason=f"lacks {missing()}")
def test_tasks_on_other_machines_come_to_the_same(folder):
    server = Sshd(folder.parent)
    try:
        (folder / "hosts.toml").write_text(server.host_list(3))
        done = run_pipeline(PipelineSpec(settings=SMALL, unit=5, actuator="ssh")).execution
    finally:
        server.close()
    assert (done.plan.mode, done.verified) == ("pipelined", True)
    assert set().union(*done.plan.rows.values()) == {"h1", "h2", "h3"}

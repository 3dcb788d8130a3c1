"""What a sweep promises, on each of its engines: programs that the agent starts on hosts, a Dask cluster."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from commands import command
from dask_cluster import await_workers, dask_cluster, scheduler_of
from waiting import files_below, until

from apples import ApplicationError, LaunchError
from apples.applications import SweepSpec, plan_parameter_sweep, run_parameter_sweep

pytestmark = pytest.mark.xdist_group("engines")
HOSTS = """
[[host]]
name = "store"
site = "home"
[[host]]
name = "here"
site = "lab"
slots = 2
seconds_per_point = 0.05
[[host]]
name = "there"
site = "partner"
slots = 2
seconds_per_point = 0.05
[default_link]
latency = 1e-4
bandwidth = 1e7
"""
SWEEP = """
name = "numbers"
command = ["{{python}}", "task.py", "{{n}}", "{{text}}", "{folder}"]
program = ["task.py"]
outputs = ["copy"]
hosts = ["here", "there"]
every = 10.0
work = "4"
[parameters]
n = {{from = 1, to = {tasks}}}
[input.text]
file = "text"
storage = "store"
"""
TASK = """
import json, os, sys, time
number, text, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
open("copy", "w").write(open(text).read())
with open(folder + "/runs", "a") as stream:
    stream.write(sys.argv[1] + "\\n")
def first(what):
    try:
        os.close(os.open(folder + "/" + what, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
"""
DONE = """
print(json.dumps({"n": number}))
"""


@dataclass(frozen=True)
class Engine:
    """An engine: what the specification of a sweep says of it, and how many processes above a task its host is."""

    name: str
    spec: dict
    home: Path
    above: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    home = tmp_path_factory.mktemp("cluster")
    with dask_cluster(home, ("here", "there"), threads=2) as address:
        yield Engine("dask", {"dask": address}, home, 2)


@pytest.fixture(params=["hosts", pytest.param("dask", marks=pytest.mark.more)])
def engine(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if request.param == "dask":
        return request.getfixturevalue("cluster")
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    return Engine("hosts", {}, home, 1)


def write(tasks, task):
    Path("hosts.toml").write_text(HOSTS)
    Path("sweep.toml").write_text(SWEEP.format(folder=Path.cwd(), tasks=tasks))
    Path("task.py").write_text(TASK + task + DONE)
    Path("text").write_text("of a storage")


def results():
    return [
        json.loads(line) for line in Path("numbers-results/results.jsonl").read_text().splitlines()
    ]


def runs():
    return Path("runs").read_text().split()


def left_over(engine):
    """Return the tasks of this folder's sweep that run, and what keeps them on the engine's hosts."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            of_task = str(Path.cwd()) in words and any(w.endswith("task.py") for w in words)
            keeper = "-S" in words and words[-1].startswith("import os;b=b")
            if of_task or (keeper and process.environ().get("HOME") == str(engine.home)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def agent(engine):
    """Start the command."""
    words = [Path(sys.executable).parent / "apples", "run"]
    words += [f"--dask={engine.spec['dask']}"] if engine.spec else []
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_files_are_there_before_a_task_its_result_is_here_after_and_nothing_is_left(engine):
    write(8, "")
    document = plan_parameter_sweep(SweepSpec(**engine.spec)).document()
    assert {each["cache"] for each in document["moves"]} == {"lab", "partner"}
    result = run_parameter_sweep(SweepSpec(**engine.spec))
    result.check()
    assert [line["result"]["n"] for line in results()] == list(range(1, 9))
    copies = [Path(f"numbers-results/files/{n}/copy").read_text() for n in range(1, 9)]
    assert copies == ["of a storage"] * 8
    assert set(result.hosts) == {"here", "there"}
    until(lambda: not left_over(engine))
    assert files_below(engine.home / ".cache") == []


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_ended_leaves_no_process_and_runs_nothing_again_that_was_acknowledged(
    engine, number
):
    write(24, "time.sleep(.2 if number < 21 else 3600 if first(str(number)) else 0)")
    journal = Path("numbers-results/journal")
    process = agent(engine)
    until(lambda: journal.exists() and journal.read_bytes().count(b'"do":"done"') >= 5, 120)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == (130 if number == signal.SIGINT else -9), said
    before = {
        str(int(json.loads(line.split(b" ", 2)[2])["task"]))
        for line in journal.read_bytes().splitlines()
        if b'"done"' in line
    }
    until(lambda: not left_over(engine))
    for held in range(21, 25):
        Path(str(held)).touch()
    result = run_parameter_sweep(SweepSpec(**engine.spec))
    result.check()
    assert result.resumed == len(before) >= 5
    assert [line["result"]["n"] for line in results()] == list(range(1, 25))
    ran = runs()
    assert all(ran.count(task) == 1 for task in before)
    assert set(ran) == {str(n) for n in range(1, 25)}


def test_a_host_that_is_lost_is_named_and_what_ran_there_runs_elsewhere(engine):
    lose = f"""
if number == 1 and first("lost"):
    above = os.getpid()
    for _ in range({engine.above}):
        above = int(open(f"/proc/{{above}}/stat").read().rpartition(")")[2].split()[1])
    own = os.getppid()
    os.kill(above, 9)
    while os.getppid() == own: time.sleep(.01)
    sys.exit()
time.sleep(.1)
"""
    write(12, lose)
    result = run_parameter_sweep(SweepSpec(**engine.spec))
    result.check()
    assert len(result.outcome.lost) == 1
    assert len(results()) == 12
    assert runs().count("1") == 2
    until(lambda: not left_over(engine))
    if engine.spec:
        await_workers(engine.spec["dask"], 2)  # its nanny starts the worker again


def test_a_straggler_is_started_once_more_and_the_first_result_counts(engine):
    write(8, "time.sleep(3600 if number == 1 and first('slow') else .05)")
    result = run_parameter_sweep(SweepSpec(**engine.spec))
    result.check()
    assert result.outcome.replicas >= 1
    assert len(results()) == 8
    until(lambda: not left_over(engine))


def test_a_task_that_fails_is_named_with_its_settings_and_the_others_are_kept(engine):
    write(6, "if number == 3: sys.exit('no convergence')")
    result = run_parameter_sweep(SweepSpec(**engine.spec))
    assert len(results()) == 5
    with pytest.raises(ApplicationError) as raised:
        result.check()
    assert raised.value.code == "task-failed"
    named = {"task": "3", "parameters": {"n": 3}, "reason_code": "program-failed", "failed": 1}
    assert named.items() <= raised.value.fields.items()
    assert raised.value.fields["reason"].endswith(": no convergence")
    assert runs().count("3") == 2


@pytest.mark.more
def test_a_dask_scheduler_that_is_stopped_in_the_middle_ends_the_sweep_which_goes_on_later(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("apples.launch.dask_cluster.SILENT_SECONDS", 2.0)
    scheduler = scheduler_of(cluster.home)
    write(
        8, f"if number == 5 and first('stopped'): os.kill({scheduler.pid}, 19); time.sleep(3600)"
    )
    try:
        with pytest.raises(LaunchError) as raised:
            run_parameter_sweep(SweepSpec(**cluster.spec))
        assert raised.value.code == "hosts-lost"
        assert cluster.spec["dask"] in raised.value.fields["reason"]
        monkeypatch.setattr("apples.launch.dask_cluster.ANSWER_SECONDS", 2)
        done = command("apples", "run", "--dask", cluster.spec["dask"])
        assert (done.code, done.err.count("\n")) == (4, 1)
        assert done.error_codes == ["dask-unreachable"]
        assert cluster.spec["dask"] in done.err
    finally:
        scheduler.resume()
    until(lambda: not left_over(cluster))
    result = run_parameter_sweep(SweepSpec(**cluster.spec))
    result.check()
    assert result.resumed > 0
    assert len(results()) == 8


@pytest.mark.more
def test_workers_that_the_list_does_not_name_are_a_site_a_machine(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(4, "")
    Path("hosts.toml").write_text(HOSTS.replace('"here"', '"one"').replace('"there"', '"two"'))
    sweep = Path("sweep.toml").read_text()
    done = command("apples", "run", "--dask", cluster.spec["dask"], "--json")
    assert done.code == 0, done.err
    assert set(done.document["execution"]["hosts"]) == {"here", "there"}
    assert done.document["execution"]["moved_files"] == 1
    Path("sweep.toml").write_text(sweep.replace('"here"', '"on"'))
    done = command("apples", "run", "--dask", cluster.spec["dask"], "--dry-run", "--json")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.failure["code"] == "host-unknown"
    assert (done.failure["fields"]["field"], done.failure["fields"]["host"]) == ("hosts", "on")


def test_a_scheduler_that_nobody_is_is_said_in_one_line(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    monkeypatch.chdir(tmp_path)
    write(2, "")
    for address in ("nonsense://x:1", "x"):
        with pytest.raises(LaunchError) as raised:
            run_parameter_sweep(SweepSpec(dask=address))
        assert raised.value.code == "dask-unreachable"
        assert raised.value.fields["address"] == address
        assert "\n" not in str(raised.value)


def test_a_missing_extra_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    write(2, "")
    done = command("apples", "run", "--dask", "tcp://127.0.0.1:1")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.error_codes == ["package-missing"]
    assert "apples[dask]" in done.err

"""Master and workers as real processes: the right total, whoever joins, leaves, is killed or talks nonsense."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from commands import command
from sshd import Sshd, missing
from waiting import files_below, until

from apples import ApplicationError, LaunchError, UsageError, VerificationError
from apples.applications import (
    HostProvider,
    MasterWorkerSpec,
    plan_master_worker,
    run_master_worker,
)
from hat import DocumentError

HOSTS = """
[[host]]
name = "ada"
seconds_per_point = 0.005
[[host]]
name = "bob"
slots = 2
seconds_per_point = 0.01
[default_link]
latency = 1e-4
bandwidth = 1e7
"""
FILE = """
name = "squares"
units = "count"
every = 0.2
[parameters]
count = 200
"""
PROGRAM = """
import time

def units(parameters):
    yield from range(parameters["count"])

def work(unit):
    time.sleep(0.005)
    return {"square": unit * unit}

def check(unit, result):
    return result["square"] >= 0

def combine(total, result):
    return (total or 0) + result["square"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("hosts.toml").write_text(HOSTS)
    Path("master-worker.toml").write_text(FILE)
    Path("program.py").write_text(PROGRAM)
    return tmp_path


def program(old, new):
    assert old in PROGRAM
    Path("program.py").write_text(PROGRAM.replace(old, new))


def together(folder, workers=3, first=0):
    """Have units from the first of them on wait until so many workers have begun one: each of them does some."""
    seen = folder / "seen"
    seen.mkdir()
    text = Path("program.py").read_text()
    waiting = f"""def work(unit):
    import os, pathlib
    seen = pathlib.Path({str(seen)!r})
    (seen / str(os.getpid())).touch()
    for _ in range(12_000):  # who has not come in two minutes does not come
        if unit < {first} or len(list(seen.iterdir())) >= {workers}:
            break
        time.sleep(0.01)
"""
    Path("program.py").write_text(text.replace("def work(unit):\n", waiting))


def squares(count):
    return sum(n * n for n in range(count))


def processes(folder, word):
    """Return the processes of a run whose script has a word in its name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(w.startswith(str(folder).encode()) and word in w.rsplit(b"/")[-1] for w in words):
            found.append(int(path.parent.name))
    return found


def run_meanwhile(spec, act):
    """Run, and do something meanwhile; return the result, or raise what the run raises."""
    ended = []

    def run():
        try:
            ended.append(run_master_worker(spec))
        except Exception as error:  # noqa: BLE001 - it is raised below
            ended.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        act()
    finally:
        thread.join(120)
    assert ended, "the run has not ended"
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


@pytest.mark.more
def test_all_units_are_done_by_all_workers_and_the_total_is_verified(folder):
    together(folder)
    result = run_master_worker(MasterWorkerSpec(verify="full"))
    done = result.outcome
    assert (done.total, done.verified) == (squares(200), 200)
    assert sum(done.hosts.values()) == 200
    assert set(done.hosts) == {"ada", "bob"}
    assert not processes(folder, b"")
    assert files_below(folder / "home") == []


@pytest.mark.more
@pytest.mark.usefixtures("folder")
def test_the_command_prints_the_total_first_and_a_dry_run_starts_nothing():
    shown = command("apples", "run", "--set", "count=20")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == str(squares(20))
    unseen = command("apples", "run", "--set", "count=20", "--no-verify", "--json")
    assert unseen.document["execution"]["verified"] == 0
    said_twice = command("apples", "run", "--no-verify", "--verify", "sample")
    assert (said_twice.code, said_twice.error_codes) == (2, ["option-conflict"])
    planned = command("apples", "run", "--dry-run", "--json").document
    assert planned["execution"] is None
    assert planned["predicted_rate"] == pytest.approx(sum(planned["workers"].values()))
    checked = command("hat", "check", "master-worker.toml")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out.startswith("master-worker.toml: master/worker")


def at_a_gate(folder, number):
    """Have units wait until a worker of ada has been sent a signal; return what sends it."""
    gate = folder / "gate"
    program(
        "time.sleep(0.005)",
        f"""from pathlib import Path
    while not Path({str(gate)!r}).exists():
        time.sleep(0.01)""",
    )

    def act():
        try:
            (worker,) = until(lambda: processes(folder, b"ada#"))
            until(lambda: processes(folder, b"bob#"))
            os.kill(worker, number)
        finally:
            gate.touch()

    return act


def test_a_worker_that_is_killed_is_done_without(folder):
    kill = at_a_gate(folder, signal.SIGKILL)
    result = run_meanwhile(MasterWorkerSpec(workers=("ada", "bob"), verify="none"), kill)
    assert result.outcome.total == squares(200)
    assert "ada" in result.outcome.lost  # a busy machine may cost it the other for a while, too


def test_a_worker_that_hangs_holds_nothing_up(folder):
    stop = at_a_gate(folder, signal.SIGSTOP)
    result = run_meanwhile(MasterWorkerSpec(workers=("ada", "bob"), verify="none"), stop)
    assert result.outcome.total == squares(200)


def test_a_master_that_is_lost_is_said_and_nothing_is_left(folder):
    program("0.005", "0.5")

    def kill():
        until(lambda: processes(folder, b"ada#"))
        os.kill(processes(folder, b"master")[0], signal.SIGKILL)

    with pytest.raises(LaunchError) as raised:
        run_meanwhile(MasterWorkerSpec(master="ada"), kill)
    assert (raised.value.code, raised.value.fields["host"]) == ("master-lost", "ada")
    assert "SIGKILL" in raised.value.fields["reason"]
    until(lambda: not processes(folder, b""))


@pytest.mark.more
def test_without_any_worker_the_run_ends(folder):
    program("0.005", "0.5")

    ended = Event()

    def kill():
        while not ended.wait(0.01):
            for worker in processes(folder, b"ada#"):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

    thread = Thread(target=kill, daemon=True)
    thread.start()
    try:
        with pytest.raises(LaunchError) as raised:
            run_master_worker(MasterWorkerSpec(workers=("ada",)))
        assert raised.value.code == "hosts-lost"
        assert "SIGKILL" in raised.value.fields["lost"]["ada"]
    finally:
        ended.set()
        thread.join(120)


@pytest.mark.parametrize(
    ("workers", "how"),
    [
        (("ada", "bob"), "os.kill(os.getpid(), 9)"),
        (("ada", "bob"), "os._exit(3)"),
        (("ada",), "os.kill(os.getpid(), 9)"),
    ],
)
@pytest.mark.more
def test_a_unit_that_ends_its_workers_is_named_and_the_others_are_done(folder, workers, how):
    deaths = folder / "deaths"
    program(
        "time.sleep(0.005)",
        f"""import os
    while unit > 7 and not os.path.exists({str(deaths)!r}):
        time.sleep(0.005)  # nobody stands idle and does what another has before that has ended it
    if unit == 7 and '.cache' in __file__:
        open({str(deaths)!r}, "a").write("x")
        {how}""",
    )
    for verify in ("none", "full") if how.startswith("os.kill") else ("none",):
        deaths.unlink(missing_ok=True)
        result = run_master_worker(MasterWorkerSpec(workers=workers, verify=verify))
        assert result.outcome.total == squares(200) - 49
        assert deaths.read_text() == "xx", "as many workers as attempts, and no more"
        assert list(result.outcome.failed) == [7]
        assert result.outcome.verified == (199 if verify == "full" else 0)
        with pytest.raises(ApplicationError) as raised:
            result.check()
        fields = raised.value.fields
        assert (raised.value.code, fields["unit"], fields["failed"]) == ("unit-failed", 7, 1)
        assert len(re.findall("ada|bob", fields["reason"])) == 2


@pytest.mark.usefixtures("folder")
def test_a_command_whose_unit_failed_says_what_the_others_come_to_and_ends_with_5():
    program("time.sleep(0.005)", "1 / 0 if unit == 7 else None")
    done = command("apples", "run", "--json")
    assert done.code == 5
    assert done.document["execution"]["result"] == squares(200) - 49
    assert [each["unit"] for each in done.document["execution"]["failed"]] == [7]
    assert (done.failure["code"], done.failure["fields"]["unit"]) == ("unit-failed", 7)


@pytest.mark.more
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("float('nan')", "JSON compliant"),
        ("-1", r"check\(\)"),
        ("1 / 0", r"ZeroDivisionError: division by zero \(program.py, line 9\)"),
        ("exit('no licence')", r"SystemExit: no licence \(program.py, line 9\)"),
        ("{1, 2}", "not JSON serializable"),
        ("exec('assert False')", r"AssertionError \(program.py, line 9\)"),
        ("'x' * 2_000_000", "2000014"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_result_that_is_nonsense_is_tried_elsewhere_and_then_its_unit_has_failed(wrong, words):
    program("unit * unit", f"{wrong} if unit == 7 else unit * unit")
    with pytest.raises(ApplicationError) as raised:
        run_master_worker(MasterWorkerSpec()).check()
    assert (raised.value.code, raised.value.fields["unit"]) == ("unit-failed", 7)
    assert re.search(f"(ada|bob), (ada|bob): .*{words}", raised.value.fields["reason"])


@pytest.mark.usefixtures("folder")
def test_who_ends_because_the_program_failed_is_not_called_lost():
    program("unit * unit", "1 / 0")
    talk = []
    with pytest.raises(ApplicationError) as raised:
        run_master_worker(MasterWorkerSpec(), talk.append)
    assert raised.value.code == "program-failed"
    assert "ZeroDivisionError" in raised.value.fields["reason"]
    assert [line for line in talk if "lost" in line] == []


@pytest.mark.more
@pytest.mark.parametrize("how", ["print('rubbish')", "import os; os.write(1, b'rubbish' * 20000)"])
@pytest.mark.usefixtures("folder")
def test_what_the_program_prints_is_no_part_of_what_it_comes_to(how):
    text = PROGRAM.replace("):\n", f"):\n    {how}\n")
    Path("program.py").write_text(text.replace("time.sleep(0.005)", ""))
    for verify in ("sample", "full"):
        outcome = run_master_worker(MasterWorkerSpec(verify=verify)).outcome
        assert (outcome.total, bool(outcome.verified)) == (squares(200), True)


def test_an_agent_that_is_killed_leaves_neither_process_nor_file(folder):
    program("0.005", "0.5")
    agent = subprocess.Popen([sys.executable, "-m", "apples", "run"])
    until(lambda: processes(folder, b"ada#"))
    agent.kill()
    agent.wait()
    until(lambda: not processes(folder, b""))
    until(lambda: not files_below(folder / "home/.cache"))


def test_what_fails_on_one_host_is_done_on_another(folder):
    together(folder)
    text = "unit * unit if 'bob' in __file__ or unit != 0 else 1 / 0"
    program("unit * unit", text)
    assert run_master_worker(MasterWorkerSpec(verify="none")).outcome.total == squares(200)


@pytest.mark.usefixtures("folder")
def test_a_result_that_is_wrong_and_looks_right_is_found_out():
    program("unit * unit", "unit * unit + ('.cache' in __file__)")
    for verify in ("sample", "full"):
        with pytest.raises(VerificationError) as raised:
            run_master_worker(MasterWorkerSpec(verify=verify))
        assert raised.value.code == "result-differs"
        assert "unit" in raised.value.fields or raised.value.fields["field"] == "total"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('range(parameters["count"])', "range(150)", r"units\(\).* 150 .* 200"),
        ('range(parameters["count"])', "range(300)", r"units\(\).* 200 "),
        ("def combine", "def merge", "program.py .* combine"),
        ("import time", "import tyme", "ModuleNotFoundError: No module named 'tyme'"),
        ("total or 0", "total.sum", r"AttributeError: .* \(program.py, line 15\)"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_program_that_is_wrong_ends_the_run_with_a_line(old, new, words):
    program(old, new)
    with pytest.raises(ApplicationError) as raised:
        run_master_worker(MasterWorkerSpec(verify="none"))
    assert raised.value.code == "program-failed"
    assert re.search(words, raised.value.fields["reason"])


@pytest.mark.more
def test_workers_join_where_the_master_serves_more_than_was_thought(folder):
    Path("master-worker.toml").write_text(FILE.replace("[par", 'service = "1"\nwork = "1"\n[par'))
    program("0.005", "0.03")
    together(folder, first=50)
    spec = MasterWorkerSpec(settings={"count": "300"}, verify="none")
    planned = plan_master_worker(spec)
    assert (planned.choice.bound, len(planned.choice.workers)) == ("master", 1)
    done = run_master_worker(spec).outcome
    assert done.joined
    assert set(done.hosts) == {"ada", "bob"}
    assert done.total == squares(300)


class LateHost(HostProvider):
    """Orders one more host as soon as the program's file has been spoilt, which it does first."""

    def __init__(self):
        self.orders, self.answers = [("ada", "bob")], []

    def report(self, status):
        pass

    def order(self):
        if self.orders:
            Path("program.py").write_text("nonsense")
        return self.orders[0] if self.orders else ()

    def answer(self, status, refusal=""):
        self.answers.append((self.orders.pop(), status.hosts, refusal))


@pytest.mark.more
def test_who_joins_gets_the_program_with_which_the_run_began(folder):
    together(folder, first=50)
    provider = LateHost()
    spec = MasterWorkerSpec(on=("ada",), verify="none", settings={"count": "1000"})
    done = run_master_worker(spec, provider=provider).outcome
    assert (done.total, done.lost) == (squares(1000), {})
    assert provider.answers[0] == (("ada", "bob"), ("ada", "bob"), "")
    assert done.hosts["bob"] > 0


@pytest.mark.more
@pytest.mark.usefixtures("folder")
def test_workers_leave_where_the_master_serves_less_than_was_thought():
    program("yield from range(parameters[\"count\"])", """for unit in range(parameters["count"]):
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        yield unit""")  # fmt: skip
    program_text = Path("program.py").read_text()
    Path("program.py").write_text(program_text.replace("0.005", "0.01"))
    done = run_master_worker(MasterWorkerSpec(verify="none", master="bob")).outcome
    assert done.left
    assert done.total == squares(200)


@pytest.mark.parametrize(
    ("old", "new", "code", "fields"),
    [
        ('"count"\n', '"cuont"\n', "parameter-unknown", {"field": "units", "line": 3}),
        ("count = 200", "count = 0", "value-range", {"field": "units", "value": 0}),
        ("every", "evry", "field-unknown", {"line": 4}),
        ("[par", 'hosts = ["adda"]\n[par', "host-unknown", {"field": "hosts", "host": "adda"}),
        ("[par", 'work = "0"\n[par', "value-range", {"field": "work", "value": 0}),
        ("[par", 'program = "other.py"\n[par', "file-missing", {"field": "program"}),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_in_the_file_is_refused_with_the_field(old, new, code, fields):
    Path("master-worker.toml").write_text(FILE.replace(old, new))
    with pytest.raises((DocumentError, UsageError)) as raised:
        plan_master_worker(MasterWorkerSpec())
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()
    file = "other.py" if code == "file-missing" else "master-worker.toml"
    assert Path(raised.value.fields["file"]).name == file
    assert str(raised.value).startswith("master-worker.toml:")


@pytest.mark.usefixtures("folder")
def test_a_setting_that_nobody_knows_is_refused():
    with pytest.raises(DocumentError) as raised:
        plan_master_worker(MasterWorkerSpec(settings={"cout": "3"}))
    (problem,) = raised.value.problems
    assert (problem.file, problem.field, problem.code) == ("--set", "cout", "parameter-unknown")
    assert problem.suggestion == "count"


@pytest.mark.ssh
@pytest.mark.skipif(bool(missing()), reason=f"lacks {missing()}")
@pytest.mark.parametrize("master", ["ada", "far"])
def test_a_master_and_workers_on_other_machines_meet(folder, master):
    together(folder)
    server = Sshd(folder)
    try:
        here, far = '"ada"\naddress = "127.0.0.1"', '"far"\naddress = "127.0.0.2"'
        text = HOSTS.replace('"ada"', here).replace('"bob"', far)
        Path("hosts.toml").write_text(f'ssh_config = "{server.config}"\n{text}')
        result = run_master_worker(MasterWorkerSpec(master=master, workers=("ada", "far")))
    finally:
        server.close()
    assert set(result.outcome.hosts) == {"ada", "far"}
    assert result.outcome.total == squares(200)

"""Sweeps from their files to results, with real processes: whole, refused, failing, killed, resumed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace

import pytest
from commands import command
from waiting import files_below, until

import apples
from apples import (
    ApplicationError,
    Host,
    HostList,
    LaunchError,
    Link,
    Network,
    NoFeasiblePlanError,
    UsageError,
)
from apples.applications import (
    HostsExecutor,
    ParameterSweep,
    SweepCommand,
    SweepSpec,
    SweepTask,
    Worker,
    WorkerConnection,
    one_cache_a_site,
    plan_parameter_sweep,
    run_parameter_sweep,
    sweep_costs,
    sweep_text,
)
from apples.weather import Conditions
from hat import DocumentError
from nws import Weather

HOSTS = """
[[host]]
name = "here"
site = "lab"
slots = 2
seconds_per_point = 0.05
[[host]]
name = "there"
site = "partner"
seconds_per_point = 0.05
[default_link]
latency = 1e-4
bandwidth = 1e7
"""
SWEEP = """
name = "letters"
command = ["{python}", "task.py", "{text}", "{length}"]
program = ["task.py"]
outputs = ["copy"]
every = 10.0
[parameters]
part = {from = 1, to = 2}
length = [1, 2, 3]
[input.text]
file = "text-{part}.txt"
storage = "here"
"""
TASK = """
import json, sys
text = open(sys.argv[1]).read()
open("copy", "w").write(text)
print(json.dumps({"letters": len(text) * int(sys.argv[2])}))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    write("hosts.toml", HOSTS)
    write("sweep.toml", SWEEP)
    write("task.py", TASK)
    for part in (1, 2):
        write(f"text-{part}.txt", "a" * part)
    return tmp_path


def write(name, text):
    Path(name).write_text(text)


def with_(old, new):
    assert old in SWEEP
    write("sweep.toml", SWEEP.replace(old, new))


def results(folder, out="letters-results"):
    return [json.loads(line) for line in (folder / out / "results.jsonl").read_text().splitlines()]


def test_every_combination_is_run_once_with_its_files_and_its_result_is_kept(folder):
    result = run_parameter_sweep(SweepSpec())
    result.check()
    found = results(folder)
    assert [line["parameters"] for line in found] == [
        {"part": part, "length": length} for part in (1, 2) for length in (1, 2, 3)
    ]
    assert [line["result"]["letters"] for line in found] == [1, 2, 3, 2, 4, 6]
    copies = folder / "letters-results/files"
    assert [(copies / str(n) / "copy").read_text() for n in range(1, 7)] == ["a"] * 3 + ["aa"] * 3
    assert sum(result.hosts.values()) == 6
    assert files_below(folder / "home") == [], "caches of a sweep that is over are removed"


def test_a_plan_starts_nothing_and_says_which_file_goes_where(folder):
    document = plan_parameter_sweep(SweepSpec()).document()
    assert document["execution"] is None
    assert {each["task"] for each in document["planned"]} == set("123456")
    assert not (folder / "letters-results").exists()
    assert all(each["cache"] == "partner" for each in document["moves"])
    shown = command("apples", "plan", "--json").document
    assert shown["makespans"] == document["makespans"]


def test_a_sweep_that_is_over_is_not_run_again(folder):
    run_parameter_sweep(SweepSpec())
    write("task.py", TASK)
    again = run_parameter_sweep(SweepSpec())
    assert (again.resumed, again.outcome.plans, again.outcome.moves) == (6, 0, 0)
    assert len(results(folder)) == 6


def test_two_agents_do_not_run_one_sweep_at_once(folder):
    (folder / "letters-results").mkdir()
    descriptor = os.open(folder / "letters-results/lock", os.O_RDWR | os.O_CREAT)
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(LaunchError) as raised:
        run_parameter_sweep(SweepSpec())
    os.close(descriptor)
    assert raised.value.code == "sweep-running"
    assert Path(raised.value.fields["file"]).name == "letters-results"


@pytest.mark.usefixtures("folder")
def test_results_of_a_program_that_has_changed_are_not_mixed():
    run_parameter_sweep(SweepSpec())
    write("task.py", TASK + "# changed\n")
    with pytest.raises(UsageError) as raised:
        run_parameter_sweep(SweepSpec())
    assert (raised.value.code, raised.value.fields["option"]) == ("sweep-changed", "--output")


@pytest.mark.usefixtures("folder")
def test_a_program_that_failed_every_task_may_be_mended_and_run_again():
    write("task.py", "raise SystemExit('a mistake')\n")
    assert len(run_parameter_sweep(SweepSpec()).outcome.failed) == 6
    write("task.py", TASK)
    result = run_parameter_sweep(SweepSpec())
    assert (len(result.outcome.done), result.resumed) == (6, 0)
    assert run_parameter_sweep(SweepSpec()).resumed == 6


@pytest.mark.usefixtures("folder")
def test_results_of_an_input_that_has_changed_are_not_mixed():
    run_parameter_sweep(SweepSpec())
    write("text-2.txt", "bb")
    with pytest.raises(UsageError) as raised:
        run_parameter_sweep(SweepSpec())
    assert (raised.value.code, raised.value.fields["option"]) == ("sweep-changed", "--output")


def test_a_command_has_options_and_values_that_begin_with_a_hyphen(folder):
    write("task.py", TASK.replace("sys.argv[2]", "len(sys.argv[2] + sys.argv[3])"))
    sweep = SWEEP.replace('"{length}"', '"--part={part}", "{length}"')
    write("sweep.toml", sweep.replace("[1, 2, 3]", '["-O1", "-v"]'))
    run_parameter_sweep(SweepSpec()).check()
    assert [line["parameters"]["length"] for line in results(folder)] == ["-O1", "-v"] * 2
    assert [line["result"]["letters"] for line in results(folder)] == [11, 10, 22, 20]


SAID = """
import json, sys
open("copy", "w").close()
print(json.dumps({"said": open(sys.argv[1]).read()}))
"""


def test_files_whose_paths_read_alike_are_apart_in_a_cache(folder):
    write("task.py", SAID)
    paths = ["x/y_z", "x_y/z", "x_y_z"]
    for path in paths:
        Path(path).parent.mkdir(exist_ok=True)
        write(path, path)
        os.utime(path, (1e9, 1e9))
    sweep = SWEEP.replace("text-{part}.txt", "{part}").replace(
        "length = [1, 2, 3]", "length = [1]"
    )
    sweep = sweep.replace("{from = 1, to = 2}", json.dumps(paths))
    write("sweep.toml", sweep.replace("every = 10.0", 'hosts = ["there"]'))
    run_parameter_sweep(SweepSpec()).check()
    assert [line["result"]["said"] for line in results(folder)] == paths


def test_a_cache_below_the_folder_where_the_command_is_given_is_found_by_the_tasks(folder):
    write("sweep.toml", SWEEP + "[[cache]]\nsite = 'lab'\ndirectory = 'kept'\n")
    run_parameter_sweep(SweepSpec(heuristic="queue")).check()
    result = run_parameter_sweep(SweepSpec(out=folder / "again"))
    assert result.hosts["here"] > 0
    assert not result.outcome.failed
    assert list((folder / "kept").iterdir()) == []


@pytest.mark.parametrize(
    ("directory", "file"),
    [('directory = "~/data"', "text"), ('directory = "data"', "text"), ("", "data/text")],
)
def test_a_file_below_the_home_of_a_storage_is_opened_by_the_tasks_beside_it(
    folder, monkeypatch, directory, file
):
    (folder / "home/data").mkdir(parents=True)
    for part in (1, 2):
        Path(f"text-{part}.txt").rename(folder / f"home/data/text-{part}.txt")
    entry = f'name = "here"\naddress = "192.0.2.1"\npython = "{sys.executable}"\n{directory}\n'
    write("hosts.toml", "[[host]]\n" + entry)
    with_("text-{part}", f"{file}-{{part}}")
    write("ssh", '#!/bin/bash\ncd && exec sh -c "${@: -1}"\n')
    Path("ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    run_parameter_sweep(SweepSpec()).check()
    assert len(results(folder)) == 6


def test_copies_of_a_task_that_end_together_leave_its_file_whole(tmp_path):
    hosts = HostList((Host("h1"), Host("h2")), Network({}, Link(1e-3, 1e6)))
    sweep = ParameterSweep((SweepTask("1"),))
    costs = sweep_costs(sweep, one_cache_a_site(hosts), Conditions(hosts, Weather()))
    second_may_end, second_is_over = Event(), Event()

    def second_ends():
        second_may_end.set()
        second_is_over.wait(0.5)  # it waits for the first, or is over

    class Ends(WorkerConnection):
        """Runs a task when it may, which leaves a file of two bytes; reading the first calls `meanwhile`."""

        python, reason = "python", ""

        def __init__(self, may_end, meanwhile, over):
            self.may_end, self.meanwhile, self.over = may_end, meanwhile, over

        def ask(self, do, offset=0, **_):
            if do == "run":
                self.may_end.wait(60)
                return {"seconds": 1.0, "late": False, "code": 0}, b"{}"
            if do == "read" and offset == 0:
                self.meanwhile()
            if do == "remove":
                self.over.set()
            return {"bytes": 2, "written": 0}, b"ab"[offset:]

        def await_hello(self, seconds=0.0):
            """Has said it."""

        def close(self):
            """Has nothing to end."""

    at_once = Event()
    at_once.set()
    workers = {
        "h1": Ends(at_once, second_ends, Event()),
        "h2": Ends(second_may_end, lambda: None, second_is_over),
    }
    command_ = SweepCommand(["true"], {"1": {}}, {"1": {}}, {}, {}, {}, ["copy"])
    executor = HostsExecutor(costs, command_, workers, {"local": "cache"}, tmp_path)
    executor.start("1", 0)
    executor.start("1", 1)
    ends = []
    until(lambda: ends.extend(executor.events(executor.now() + 1.0)) or len(ends) == 2)
    executor.close()
    assert [each.failure for each in ends] == ["", ""]
    assert (tmp_path / "1/copy").read_bytes() == b"ab"


def test_connections_to_hosts_are_closed_at_the_same_time(tmp_path):
    names = ("h1", "h2", "h3")
    hosts = HostList(tuple(map(Host, names)), Network({}, Link(1e-3, 1e6)))
    sweep = ParameterSweep((SweepTask("1"),))
    costs = sweep_costs(sweep, one_cache_a_site(hosts), Conditions(hosts, Weather()))
    all_are_closing = Barrier(len(names))
    closed = []

    class Slow(WorkerConnection):
        """Ends once all others are ending, too."""

        python, reason = "python", ""

        def ask(self, do, **_):
            raise NotImplementedError

        def await_hello(self, seconds=0.0):
            raise NotImplementedError

        def close(self):
            all_are_closing.wait(10)
            closed.append(self)

    workers = {name: Slow() for name in names}
    command_ = SweepCommand(["true"], {"1": {}}, {"1": {}}, {}, {}, {}, [])
    HostsExecutor(costs, command_, workers, {"local": "cache"}, tmp_path).close()
    assert set(closed) == {*workers.values()}


def test_a_host_without_the_folder_of_its_site_says_which_folder(folder):
    lines = []
    worker = Worker({}, SimpleNamespace(write=lines.append, flush=lambda: None))
    worker.answer({"do": "run", "id": 1, "path": f"{folder}/none/task-1", "argv": ["true"]}, b"")
    until(lambda: lines)
    assert f"{folder}/none/task-1: ".encode() in b"".join(lines)
    lines.clear()
    worker.answer({"do": "run", "id": 2, "path": f"{folder}/task-2", "argv": ["a\0b"]}, b"")
    until(lambda: b'"code": 127' in b"".join(lines))


@pytest.mark.more
@pytest.mark.parametrize(
    ("program", "code", "value"),
    [
        (
            "import sys; sys.exit('no convergence')",
            "program-failed",
            "exit code 1: no convergence",
        ),
        ("print('energy: 3')", "result-invalid", "energy: 3"),
        ("pass", "result-missing", ""),
        ("print('[1]')", "result-invalid", "[1]"),
        ("print('{\"a\": NaN}')", "result-invalid", ""),
        ("print('{\"a\": 1e999}')", "result-invalid", "finite"),
        ("print('{\"a\":' + '[' * 980 + ']' * 980 + '}')", "result-invalid", "32"),
        ("print('x' * 100000)", "result-too-long", "65536"),
        ("print('{}')", "output-missing", "copy"),
        ("import time; time.sleep(60)", "task-timeout", "6 s"),
        ("import os; os.kill(os.getpid(), 9)", "program-killed", "SIGKILL"),
    ],
)
def test_a_task_that_fails_or_says_nonsense_is_named_with_its_settings_and_the_others_are_kept(
    folder, program, code, value
):
    with_(
        'name = "letters"',
        'name = "letters"\ntimeout = 6.0' if "sleep" in program else 'name = "letters"',
    )
    write(
        "task.py",
        TASK.replace(
            "\nimport json, sys\n",
            f"\nimport json, sys\nif sys.argv[2] == '3':\n    {program}\n    sys.exit()\n",
        ),
    )
    result = run_parameter_sweep(SweepSpec())
    assert len(results(folder)) == 4
    with pytest.raises(ApplicationError) as raised:
        result.check()
    assert raised.value.code == "task-failed"
    fields = raised.value.fields
    assert (fields["reason_code"], fields["failed"]) == (code, 2)
    assert (fields["task"], fields["parameters"]) in (
        ("3", {"part": 1, "length": 3}),
        ("6", {"part": 2, "length": 3}),
    )
    assert value in fields["reason"]
    assert command("apples", "run").code == 5


@pytest.mark.parametrize(
    ("old", "new", "code", "field", "line", "suggestion"),
    [
        ('"{length}"]', '"{lenght}"]', "parameter-unknown", "command[3]", 3, "length"),
        ("text-{part}", "text-{prat}", "parameter-unknown", "input.text.file", 11, "part"),
        (", to = 2", "", "field-missing", "parameters.part.to", 8, ""),
        ("to = 2", "to = 0", "value-missing", "parameters.part", 8, ""),
        ("to = 2", "to = 1000000", "value-range", "parameters", 7, ""),
        ("every = 10.0", "evry = 10.0", "field-unknown", "", 6, "every"),
        ("every = 10.0", 'work = "lenght"', "parameter-unknown", "work", 6, "length"),
        ("[input.text]", "[input.part]", "name-repeated", "input.part", 10, ""),
        ("part = {", "python = {", "name-reserved", "parameters.python", 8, ""),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_in_the_file_is_told_with_its_line_and_what_would_be_right(
    old, new, code, field, line, suggestion
):
    with_(old, new)
    with pytest.raises(DocumentError) as raised:
        plan_parameter_sweep(SweepSpec())
    problems = {problem.field: problem for problem in raised.value.problems}
    problem = problems[field]
    assert (problem.code, problem.line, problem.suggestion) == (code, line, suggestion)


@pytest.mark.parametrize(
    ("old", "new", "code", "fields"),
    [
        ("text-{part}", "txt-{part}", "input-unreadable", {"field": "input.text", "host": "here"}),
        ('storage = "here"', 'storage = "hear"', "host-unknown", {"field": "input.text", "host": "hear"}),
        ('["task.py"]', '["tusk.py"]', "file-missing", {"field": "program"}),
        ("every = 10.0", 'work = "length - 2"', "value-range",
         {"task": "1", "parameters": {"part": 1, "length": 1}, "field": "work", "value": -1}),
        ("every = 10.0", 'hosts = ["hear"]', "host-unknown", {"field": "hosts", "host": "hear"}),
        ("every = 10.0", '[[cache]]\nsite = "lob"\n', "site-unknown", {"field": "cache", "site": "lob"}),
    ],
)  # fmt: skip
def test_what_the_files_name_and_nobody_has_is_refused_before_anything_starts(
    folder, old, new, code, fields
):
    text = SWEEP.replace(old, "") + new if new.startswith("[[") else SWEEP.replace(old, new)
    write("sweep.toml", text)
    with pytest.raises(UsageError) as raised:
        run_parameter_sweep(SweepSpec())
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()
    if code in {"input-unreadable", "file-missing"}:
        assert re.search(r"txt-\d\.txt$|tusk\.py$", raised.value.fields["file"])
    assert not (folder / "letters-results").exists()


@pytest.mark.usefixtures("folder")
def test_hat_check_knows_a_sweep_and_its_mistakes():
    done = command("hat", "check", "sweep.toml")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("sweep.toml: parameter sweep")
    with_("{part}", "{prat}")
    done = command("hat", "check", "sweep.toml", "hosts.toml")
    assert done.code == 2
    assert done.err.startswith("sweep.toml:11: input.text.file: ")
    assert "'prat'" in done.err


@pytest.mark.usefixtures("folder")
def test_a_heuristic_that_nobody_has_is_refused():
    with pytest.raises(UsageError) as raised:
        plan_parameter_sweep(SweepSpec(heuristic="sufferag"))
    assert raised.value.code == "heuristic-unknown"
    assert raised.value.fields["value"] == "sufferag"
    assert "sufferage" in raised.value.fields["known"]


@pytest.mark.usefixtures("folder")
def test_a_storage_that_is_full_takes_no_task_and_where_all_are_no_plan_is_the_answer():
    write("sweep.toml", SWEEP + '[[cache]]\nsite = "partner"\ncapacity = 1\n')
    assert {each["file"] for each in plan_parameter_sweep(SweepSpec()).document()["moves"]} <= {
        "text-1.txt"
    }
    text = SWEEP.replace("every = 10.0", 'hosts = ["there"]')
    write("sweep.toml", text + '[[cache]]\nsite = "partner"\ncapacity = 1\n')
    with pytest.raises(NoFeasiblePlanError) as raised:
        plan_parameter_sweep(SweepSpec())
    assert {each.filter for each in raised.value.rejections} == {"storage"}
    assert re.search(r"task \d .*2\.00 B", raised.value.fields["reason"])
    assert command("apples", "run").code == 3


def test_a_host_that_cannot_be_reached_is_left_out(folder, monkeypatch):
    write(
        "hosts.toml",
        HOSTS.replace(
            'name = "there"',
            'name = "there"\naddress = "192.0.2.1"\npython = "/no/python"\nuser = "nobody"',
        ),
    )
    write("ssh", "#!/bin/sh\necho 'no route to host' >&2\nexit 255\n")
    Path("ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    said = []
    result = run_parameter_sweep(SweepSpec(), talk=said.append)
    result.check()
    assert result.hosts == {"here": 6, "there": 0}
    assert [line for line in said if "there: no route to host" in line]
    assert result.outcome.lost == {"there": "no route to host"}
    assert [
        line
        for line in sweep_text(result.document()).splitlines()
        if "there: no route to host" in line
    ]


@pytest.mark.more
def test_the_scaffold_of_a_sweep_runs_and_its_agent_is_short(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert command("hat", "new", "waves", "--structure", "sweep").code == 0
    agent = tmp_path / "waves/agent.py"
    assert len(agent.read_text().splitlines()) <= 60
    environment = {**os.environ, "PYTHONPATH": str(Path(apples.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, agent], capture_output=True, text=True, env=environment, check=True
    )
    assert "20 tasks; most again: 10 at {'part': 1, 'shift': 7}" in done.stdout


def test_a_model_that_nobody_has_is_refused(tmp_path):
    done = command("hat", "new", "waves", "--structure", "swep", "--into", tmp_path)
    assert (done.code, done.error_codes) == (2, ["model-unknown"])


DYING = """
if sys.argv[2] == "3" and not os.path.exists("{mark}"):
    open("{mark}", "w").close()
    os.kill(os.getppid(), 9)  # the worker of this host
"""


def test_over_ssh_the_same_results_come_and_a_host_that_dies_is_done_without(folder, sshd):
    write("hosts.toml", sshd.host_list(3))
    text = SWEEP.replace('"here"', '"h1"').replace("text-{part}", f"{folder}/text-{{part}}")
    write("sweep.toml", text)
    dying = DYING.format(mark=folder / "died")
    write("task.py", TASK.replace("import json, sys\n", f"import json, os, sys\n{dying}"))
    result = run_parameter_sweep(SweepSpec())
    result.check()
    assert [line["result"]["letters"] for line in results(folder)] == [1, 2, 3, 2, 4, 6]
    assert len(result.outcome.lost) == 1


def test_what_a_task_left_is_on_the_disk_before_its_result_is_acknowledged(folder, monkeypatch):
    synced = []

    def recording(sync):
        def recorded(handle):
            synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
            sync(handle)

        return recorded

    monkeypatch.setattr(os, "fsync", recording(os.fsync))
    monkeypatch.setattr(os, "fdatasync", recording(os.fdatasync))
    with_("to = 2", "to = 1")
    write("sweep.toml", Path("sweep.toml").read_text().replace("[1, 2, 3]", "[1]"))
    run_parameter_sweep(SweepSpec()).check()
    kept = folder / "letters-results"
    left = [str(kept / part) for part in ("files/1/copy.part", "files/1", "files")]
    begin = synced.index(left[0])
    assert synced[begin : begin + 4] == [*left, str(kept)]
    assert any("journal" in name for name in synced[begin + 4 :])


@pytest.mark.usefixtures("folder")
def test_a_second_cache_of_a_site_is_refused():
    write("sweep.toml", SWEEP + '[[cache]]\nsite = "lab"\n[[cache]]\nsite = "lab"\ncapacity = 5\n')
    with pytest.raises(DocumentError) as raised:
        plan_parameter_sweep(SweepSpec())
    assert (raised.value.code, raised.value.fields["field"]) == ("name-repeated", "cache[1].site")

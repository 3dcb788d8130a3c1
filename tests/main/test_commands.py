"""Every command: data on stdout, talk on stderr, JSON with a schema, codes."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from commands import EXAMPLE, HOSTS, TEMPLATE, command, files, refused

from apples.__main__ import COMMANDS, RENAMED
from apples.__main__ import main as apples_main
from apples.applications.commands import COMMANDS as HAT
from apples.jobs import store
from apples.weather.commands.nws import COMMANDS as NWS

PROGRAMS = {"apples": COMMANDS, "hat": HAT, "nws": NWS}


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("oldverb", ["oldverb", "--help"]),
        ("oldverb", ["oldverb", "job", "--from", "ada"]),
        ("hosts old", ["hosts", "old", "a.toml"]),
        ("run --old", ["run", "--old", "--dry-run"]),
    ],
)
def test_renamed_command_names_its_replacement(old, words, monkeypatch):
    monkeypatch.setitem(RENAMED, old, "apples newverb JOB")
    failure = refused("apples", *words)
    assert (failure["exit_code"], failure["code"]) == (2, "command-renamed")
    assert failure["fields"] == {"value": old, "suggestion": "apples newverb JOB"}
    done = command("apples", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.error_codes == ["command-renamed"]
    assert command("apples", "lab", "--help").code == 0


def commands_below(path, found):
    """Yield the words and the object of a command and of each of its sub-commands."""
    yield path, found
    for name, below in getattr(found, "commands", {}).items():
        yield from commands_below((*path, name), below)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_help_has_an_example_and_names_values_in_words(program):
    for name, entry in PROGRAMS[program].items():
        for path, found in commands_below((program, name), entry.load()):
            done = command(*path, "--help")
            assert done.code == 0
            assert hasattr(found, "commands") or "Example: " in done.out, path
            values = [each.make_metavar(found.context_class(found)) for each in found.params]
            assert not {"TEXT", "INTEGER", "FLOAT", "PATH"} & {*values}, path
            missing = [each.name for each in found.params if each.required]
            assert done.out.count("[required") == len(missing), path
            assert not re.search(r"\w-$", done.out, re.MULTILINE), path


@pytest.mark.parametrize("name", ["apples", "hat", "nws"])
def test_help_says_what_there_is_and_where_to_start(name):
    done = command(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert "Start with:" in done.out


@pytest.mark.parametrize(
    "words",
    [
        ("apples", "plan"),
        ("apples", "run"),
        ("apples", "calibrate"),
        ("apples", "demo"),
        ("apples", "check"),
        ("hat", "new"),
        ("hat", "check"),
        ("nws", "backtest"),
        ("nws", "extract"),
        ("nws", "forecast"),
        ("nws", "query"),
        ("nws", "sense"),
        ("nws", "serve"),
        ("nws", "status"),
    ],
)
def test_every_command_has_help_with_an_example(words):
    done = command(*words, "--help")
    assert done.code == 0
    assert "Example: " in done.out


@pytest.mark.parametrize(
    "words",
    [
        ("apples", "plna"),
        ("apples", "plan", "--hots", "x"),
        ("apples", "plan"),
        ("apples", "demo", "--repeat", "0"),
        ("apples", "demo", "--repeat", "x"),
        ("hat", "check", "--schema", "weather"),
        ("nws", "sense", "--rounds", "0"),
    ],
)
def test_a_misused_command_ends_with_2_and_says_so_on_stderr(words):
    done = command(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert "Traceback" not in done.err


def test_host_lists_are_checked_with_file_line_and_field(tmp_path):
    files(tmp_path)
    bad = tmp_path / "bad.toml"
    bad.write_text('[[host]]\nname = "ada"\nslot = 2\n')
    done = command("apples", "check", tmp_path / "hosts.toml", bad)
    assert done.code == 2
    assert done.out.startswith(f"{tmp_path}/hosts.toml: ")
    assert done.err.startswith(f"{bad}:3: host[0]: ")
    assert len(done.error_codes) == done.err.count("\n") == 1
    done = command("apples", "check", "--json", bad)
    assert done.document["schema"] == "hat.check/1"
    (problem,) = done.document["files"][0]["problems"]
    assert (problem["line"], problem["field"], problem["suggestion"]) == (3, "host[0]", "slots")


def test_hat_checks_all_three_kinds_of_files(tmp_path):
    files(tmp_path, hosts=HOSTS, template=TEMPLATE, user="")
    (tmp_path / "heat.py").write_text("")
    names = [tmp_path / f"{n}.toml" for n in ("hosts", "template", "user")]
    done = command("hat", "check", *names)
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == 3
    document = command("hat", "check", "--json", *names).document
    assert [one["problems"] for one in document["files"]] == [[], [], []]


def test_hat_new_makes_an_agent_whose_files_are_right(tmp_path):
    done = command("hat", "new", "heat", "--into", tmp_path, "--json")
    assert done.document["schema"] == "hat.new/1"
    tomls = sorted(tmp_path.rglob("*.toml"))
    assert {path.name for path in tomls} == {"hosts.toml", "template.toml", "user.toml"}
    assert command("hat", "check", *tomls).code == 0
    assert refused("hat", "new", "heat", "--into", tmp_path)["exit_code"] == 2


@pytest.mark.parametrize("kind", ["template", "user", "hosts", "protocol"])
def test_schemas_are_json_schemas(kind):
    document = command("apples", "check", "--schema", kind).document
    assert "$schema" in document or "properties" in document or "$defs" in document


@pytest.mark.more
def test_the_weather_that_is_sensed_is_planned_under(tmp_path):
    hosts = '[[host]]\nname = "ada"\ncpus = [0]\nseconds_per_point = 1e-9\n'
    given = files(tmp_path, hosts=hosts)
    sensed = command("nws", "sense", "--hosts", tmp_path / "hosts.toml", "--rounds", "2")
    assert (sensed.code, sensed.document["schema"]) == (0, "nws.weather/1")
    sky = tmp_path / "sky.json"
    sky.write_text(sensed.out)
    plan = command("apples", "plan", *given, "--weather", sky, "--json").document
    assert plan["chosen"]["strips"][0]["cpu"] == sensed.document["cpu"]["ada"]["value"]
    again = command("apples", "plan", *given, "--weather", sky, "--json").document
    assert again == plan


def test_a_list_without_a_host_of_this_machine_cannot_be_sensed(tmp_path):
    files(tmp_path, hosts='[[host]]\nname = "elsewhere.invalid"\n')
    done = command("nws", "sense", "--hosts", tmp_path / "hosts.toml")
    assert (done.code, done.error_codes) == (2, ["host-not-local"])
    assert str(tmp_path / "hosts.toml") in done.err


@pytest.mark.mpi
def test_calibration_prints_and_remembers_the_speeds(tmp_path):
    hosts = '[[host]]\nname = "ada"\ncpus = [0]\n'
    path = tmp_path / "hosts.toml"
    path.write_text(hosts)
    given = [
        "--hosts",
        path,
        "--template",
        tmp_path / "template.toml",
        "--user",
        EXAMPLE / "user.toml",
    ]
    plain = (EXAMPLE / "template.toml").read_text().replace("solver.py", f"{EXAMPLE}/solver.py")
    plain += '[active_set]\nada = "numpy"\n'
    path.with_name("template.toml").write_text(plain)
    done = command(
        "apples", "calibrate", *given, "--set", "grid=100", "--rows", "20,100", "--json"
    )
    assert done.code == 0, done.err
    speeds = done.document["hosts"]["ada"]["numpy"]
    assert done.document["schema"] == "apples.calibration/1"
    assert speeds["rows"] == [20, 100]
    (remembered,) = (tmp_path / "state").rglob("*.json")
    assert json.loads(remembered.read_text())["speeds"]["ada#0"]["numpy"] == speeds


@pytest.mark.parametrize(
    ("rows", "code", "bound"),
    [("0", "value-range", 100), ("5,101", "value-range", 100), ("a", "value-type", None)],
)
def test_sizes_outside_the_grid_are_refused(rows, code, bound):
    given = [w for n in ("hosts", "template", "user") for w in (f"--{n}", EXAMPLE / f"{n}.toml")]
    failure = refused("apples", "calibrate", *given, "--set", "grid=100", "--rows", rows)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    fields = failure["fields"]
    assert (fields["option"], fields["value"], fields.get("bound")) == ("--rows", rows, bound)


def test_an_error_of_the_system_is_one_line_and_4(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    failure = refused("apples", "jobs")
    assert (failure["exit_code"], failure["code"]) == (4, "system-error")
    assert failure["fields"]["file"].startswith(f"{tmp_path}/file/apples")


@pytest.mark.more
def test_nobody_who_reads_is_no_error_and_a_full_stdout_is_named():
    """The pipe is closed before the command writes to it."""
    order = [sys.executable, "-c", "from apples.__main__ import main; main()"]
    words = [
        *order,
        "simulate",
        "lublin:jobs=20,processors=16",
        "--policy",
        "easy",
        "--processors",
    ]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        done = subprocess.run([*words, "16"], stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*words, "16"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith(b"apples: stdout: ")
    assert done.stderr.endswith(b" [disk-full]\n")


def test_file_is_written_and_error_reported_when_stdout_is_a_closed_pipe(tmp_path):
    table, page = tmp_path / "jobs.csv", tmp_path / "page.html"
    (tmp_path / "policy.py").write_text("def broken(state):\n    raise ValueError(1)\n")
    order = [sys.executable, "-c", "from apples.__main__ import main; main()"]
    model, size = "lublin:jobs=20,processors=16", ("--processors", "16")

    def exit_code(*words: object) -> int:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as closed:
            words = [*order, *map(str, words)]
            return subprocess.run(words, stdout=closed, check=False).returncode

    assert exit_code("simulate", model, "--policy", "easy", *size, "--csv", table) == 0
    assert len(table.read_text("utf-8").splitlines()) == 21
    assert exit_code("report", model, "--policy", "easy", *size, "--out", page) == 0
    assert page.stat().st_size
    broken = f"{tmp_path / 'policy.py'}:broken"
    assert exit_code("simulate", model, "--policy", broken, *size) == 2


@pytest.mark.parametrize("program", ["apples", "hat", "nws"])
def test_every_program_says_its_version(program):
    version = metadata.version("apples")
    assert command(program, "--version").out == f"apples {version}\n"


@pytest.mark.parametrize(
    "words",
    [
        "apples plan",
        "apples wait",
        "apples lab",
        "apples lab up",
        "apples jobs",
        "hat new",
        "nws serve",
    ],
)
def test_every_command_says_the_version_whatever_else_it_needs(words):
    done = command(*words.split(), "--version")
    assert (done.code, done.out) == (0, f"apples {metadata.version('apples')}\n")


def test_an_option_of_another_programs_is_passed_on():
    done = command("apples", "lab", "exec", "ada", "ls", "--version")
    assert done.code != 0, "there is no lab"
    assert "apples " not in done.out


def test_the_commands_stand_in_sections_of_the_help():
    text = command("apples", "--help").out
    sections = ["Plan and run:", "Runs and jobs:", "Simulate:", "Machines:", "Set-up:"]
    assert [line for line in text.splitlines() if line in sections] == sections
    assert text.index("Runs and jobs:") < text.index("  wait ") < text.index("Simulate:")


def offered(words, folder, monkeypatch, capsys):
    """Return what bash is told that the last of these words may become."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("_APPLES_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setattr(sys, "argv", ["apples"])
    with pytest.raises(SystemExit) as ended:
        apples_main()
    said = capsys.readouterr()
    assert (ended.value.code, said.err) == (0, "")
    return [line.partition(",")[2] for line in said.out.splitlines() if line]


def test_a_shell_is_offered_commands_options_parameters_jobs_and_their_hosts(
    tmp_path, monkeypatch, capsys
):
    files(tmp_path, template=TEMPLATE + "[parameters.grid]\ndefault = 9\n")
    job = store.create({"hosts": str(tmp_path / "hosts.toml")}, "heat")

    def ask(words):
        return offered(words, tmp_path, monkeypatch, capsys)

    assert ask("apples resi") == ["resize"]
    assert ask("apples plan --ex") == ["--explain"]
    assert ask("apples run --set ") == ["grid="]
    assert ask("apples wait " + job.id[:3]) == [job.id]
    run = store.create({}, "heat", store.RUN)
    assert ask(f"apples report {run.id}") == [run.id]
    assert ask(f"apples cancel {run.id}") == []
    assert ask(f"apples resize {job.id} --on ada=2,") == ["ada=2,bob", "ada=2,far"]
    assert ask(f"apples resize {job.id} --from f") == ["far"]
    (tmp_path / "template.toml").write_text("[")
    assert ask("apples run --set ") == []

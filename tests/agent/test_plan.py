"""`apples plan`: codes, faces, options, and the user's own code."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import HOSTS, TEMPLATE, command, files, planned, refused
from worlds import pool

from apples import Host, Link
from apples.agent import Coordinator, Learned, SpeedFunction, decide, plan_text
from apples.ui import duration
from blueprints import all_resources

BIN = Path(sys.executable).parent


def real(*words, **more):
    """Run a console script as a process of its own."""
    program, *rest = [str(word) for word in words]
    return subprocess.run(
        [str(BIN / program), *rest],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def refused_plan(folder, *options, **contents):
    """Return the error of a static plan that only fails; under `--weather` of the options if given."""
    given = files(folder, **contents)
    weather = () if "--weather" in options else ("--weather", "static")
    return refused("apples", "plan", *given, *weather, *options)


# ------------------------------------------------------------------ as a process
def test_bad_input_ends_with_2_and_one_line_on_stderr(tmp_path):
    done = real("apples", "plan", *files(tmp_path, user="[limits]"), "--weather", "static")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{tmp_path}/user.toml:1: ")
    assert done.stderr.count("\n") == 1


def test_no_plan_ends_with_3_the_reasons_and_what_would_help(tmp_path):
    hosts = HOSTS.replace("4 GB", "1 MB")
    done = real("apples", "plan", *files(tmp_path, hosts=hosts), "--weather", "static", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert document["chosen"] is None
    assert document["rejected_total"] == len(document["rejected"]) > 0
    assert all(len(r["figures"]) == 2 for r in document["rejected"])
    assert "grid" in document["remedy"]
    assert done.stderr.count("\n") == 1
    failure = json.loads(done.stderr)
    assert (failure["code"], failure["exit_code"]) == ("no-feasible-plan", 3)
    assert failure["fields"]["remedy"] == document["remedy"]
    assert failure["fields"]["refusals"] == document["rejected_total"]


def test_help_imports_none_of_the_heavy_libraries():
    code = (
        "import sys; sys.argv = ['apples', '--help']\n"
        "from apples.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "click" in loaded
    assert not loaded & {
        "numpy", "scipy", "pulp", "pydantic", "jinja2", "mpi4py", "psutil", "nws", "requests", "numba",
    }  # fmt: skip
    assert "Start with: apples demo" in " ".join(done.stdout.split())


def test_a_static_plan_prints_json_says_nothing_and_touches_no_state_directory(tmp_path):
    environment = {
        "PATH": "/usr/bin:/bin",
        "XDG_STATE_HOME": f"{tmp_path}/state",
        "HOME": str(tmp_path),
    }
    given = files(tmp_path)
    done = real("apples", "plan", *given, "--weather", "static", "--json", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema"] == "apples.plan/1"
    assert {p.name for p in tmp_path.iterdir()} == {"hosts.toml", "template.toml", "user.toml"}


# --------------------------------------------------------------------- the faces
def test_the_first_line_is_the_answer_and_the_last_what_to_type_next(tmp_path):
    lines = planned(tmp_path).out.splitlines()
    chosen = planned(tmp_path, "--json").document["chosen"]
    assert all(host in lines[0] for host in chosen["hosts"])
    assert duration(chosen["iteration_seconds"]) in lines[0]
    assert "apples run --hosts " in lines[-1]


def test_a_plan_is_complete(tmp_path):
    document = planned(tmp_path, "--json").document
    assert set(document["chosen"]) >= {"hosts", "rows", "iteration_seconds", "execution_seconds"}
    assert sum(document["chosen"]["rows"]) == document["application"]["rows"]
    seconds = document["chosen"]["iteration_seconds"] * document["application"]["iterations"]
    assert document["chosen"]["execution_seconds"] == seconds
    assert document["considered"] == document["feasible"] + document["rejected_total"]


def test_at_most_a_hundred_refusals_are_printed_and_all_counted(tmp_path):
    hosts = "".join(f'[[host]]\nname = "h{i}"\nfree_memory = 10\n' for i in range(150))
    document = planned(tmp_path, "--json", hosts=hosts).document
    assert (len(document["rejected"]), document["rejected_total"]) == (100, 150)


# ------------------------------------------------------------------- the options
OWN_NAMES = {
    "planner": ("linaer", "linear"),
    "distance": ("far", "paper"),
    "model": ("strp", "strip"),
    "blueprint": ("block", "blocked"),
}


@pytest.mark.parametrize("kind", OWN_NAMES)
def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path, kind):
    name, known = OWN_NAMES[kind]
    failure = refused_plan(tmp_path, f"--{kind}", name)
    assert failure["code"] == f"{kind}-unknown"
    assert failure["fields"]["value"] == name
    assert known in failure["fields"]["known"]


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        (["--set", "grid"], "value-invalid", {"option": "--set", "value": "grid"}),
        (["--weather", "sunny"], "file-missing", {"option": "--weather", "file": "sunny"}),
        (["--planner", "no.py:x"], "file-missing", {"file": "no.py"}),
        (["--planner", "json:nothing"], "user-code-missing", {"file": "json", "value": "nothing"}),
        (
            ["--model", "sys:version"],
            "user-code-not-callable",
            {"file": "sys", "value": "version"},
        ),
        (
            ["--model", "nonesuch:x"],
            "user-code-failed",
            {"file": "nonesuch", "kind": "ModuleNotFoundError"},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_value_is_2_and_its_code(tmp_path, options, code, fields):
    failure = refused_plan(tmp_path, *options)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"].items() >= fields.items()


@pytest.mark.parametrize(
    ("setting", "field", "value", "suggestion"),
    [("grid=0", "grid", "0", ""), ("grid=x", "grid", "x", ""), ("grit=5", "grit", "", "grid")],
)
def test_a_bad_parameter_is_2_and_its_name(tmp_path, setting, field, value, suggestion):
    failure = refused_plan(tmp_path, "--set", setting)
    (problem,) = failure["fields"]["problems"]
    assert failure["exit_code"] == 2
    assert (problem["file"], problem["field"], problem["suggestion"]) == (
        "--set",
        field,
        suggestion,
    )
    assert value in problem["message"]


@pytest.mark.parametrize("option", ["--hosts", "--template", "--user"])
def test_a_file_that_is_not_there_is_2_and_one_clear_line(tmp_path, option):
    given = files(tmp_path)
    given[given.index(option) + 1] = str(tmp_path / "none.toml")
    failure = refused("apples", "plan", *given, "--weather", "static")
    assert (failure["exit_code"], failure["code"]) == (2, "file-missing")
    assert failure["fields"]["file"] == f"{tmp_path}/none.toml"


def test_files_of_the_usual_names_need_not_be_named(tmp_path, monkeypatch):
    named = files(tmp_path)
    monkeypatch.chdir(tmp_path)
    asked = ("--weather", "static", "--json")
    short = command("apples", "plan", *asked)
    assert (short.code, short.out) == (0, command("apples", "plan", *named, *asked).out)
    (tmp_path / "user.toml").unlink()
    assert command("apples", "plan", *asked).code == 0
    (tmp_path / "user.toml").write_text('[constraints]\nhosts = ["ada"]')
    assert command("apples", "plan", *asked).document["chosen"]["hosts"] == ["ada"]


def test_all_files_that_are_missing_are_named_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failure = refused("apples", "plan", "--user", "wishes.toml")
    assert (failure["exit_code"], failure["code"]) == (2, "file-missing")
    missing = [problem["file"] for problem in failure["fields"]["problems"]]
    assert missing == ["hosts.toml", "template.toml", "wishes.toml"]


@pytest.mark.parametrize(
    ("user", "line", "field"),
    [
        ('[constraints]\nhosts = ["abroad"]', 2, "constraints.hosts[0]"),
        ('[constraints]\nsites = ["ada"]', 2, "constraints.sites[0]"),
        ('[constraints]\nexclude = ["adb"]', 2, "constraints.exclude[0]"),
        ('[objective]\nmeasure = "speedup"\nreference = "local"', 3, "objective.reference"),
    ],
)
def test_a_user_file_naming_what_the_list_does_not_have_is_2(tmp_path, user, line, field):
    failure = refused_plan(tmp_path, user=user)
    assert failure["exit_code"] == 2
    fields = failure["fields"]
    assert (fields["file"], fields["line"], fields["field"]) == (
        f"{tmp_path}/user.toml",
        line,
        field,
    )


def test_a_recorded_sky_is_planned_under(tmp_path):
    forecast = {"value": 0.6, "error": 0.01, "method": "last_value", "samples": 9, "time": 0.0}
    sky = tmp_path / "sky.json"
    sky.write_text(json.dumps({"schema": "nws.weather/1", "time": 0.0, "cpu": {"ada": forecast}}))
    under = planned(tmp_path, "--weather", sky, "--json").document
    static = planned(tmp_path, "--json").document
    strips = {s["host"]: s for s in under["chosen"]["strips"]}
    assert (strips["ada"]["cpu"], strips["ada"]["cpu_error"]) == (0.6, 0.01)
    assert under["weather"]["kind"] == "measured"
    assert under["chosen"]["rows"] != static["chosen"]["rows"]
    low, high = under["chosen"]["interval"]
    assert low == high, "no run has measured an interval"


@pytest.mark.parametrize(
    ("tables", "field", "host", "near"),
    [
        ({"cpu": {"adda": {"value": 0.5}}}, "cpu.adda", "adda", "ada"),
        ({"bandwidth": {"ada/bobb": {"value": 1e6}}}, "bandwidth.ada/bobb", "bobb", "bob"),
        ({"cpu": {"ada": {"value": 0.5}}, "free_memory": {"zz9": {"value": 9}}}, "free_memory.zz9", "zz9", ""),
        ({"cpu": {"abroad": {"value": 0.5}}}, "cpu.abroad", "abroad", ""),
    ],
)  # fmt: skip
def test_a_weather_file_that_names_another_host_is_2_with_the_field(
    tmp_path, tables, field, host, near
):
    sky = tmp_path / "sky.json"
    sky.write_text(json.dumps({"schema": "nws.weather/1", "time": 0.0, **tables}))
    failure = refused_plan(tmp_path, "--weather", sky)
    assert (failure["exit_code"], failure["code"]) == (2, "host-unknown")
    fields = failure["fields"]
    assert (fields["file"], fields["field"], fields["host"]) == (str(sky), field, host)
    assert ("did you mean" in failure["message"], near in failure["message"]) == (bool(near), True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "weather-invalid"),
        ("{}", "schema-unknown"),
        ('{"schema": "nws.weather/1"}', "value-type"),
        ("[]", "value-type"),
    ],
)
def test_a_file_without_a_weather_is_2_and_its_name(tmp_path, text, code):
    sky = tmp_path / "sky.json"
    sky.write_text(text)
    failure = refused_plan(tmp_path, "--weather", sky)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"]["file"] == str(sky)


# ------------------------------------------------------------------ where speeds are from
FAST = SpeedFunction((20.0, 1000.0), (1e-8, 1e-8), columns=1000, points=1e6)
"""Calibrated at grid=1000."""


def under_live_weather(speeds, grid):
    """Return the document of a plan of ada and bob with these calibrations, under weather that was measured."""
    hosts = [Host(name, seconds_per_point=2e-9) for name in ("ada", "bob")]
    information = pool(
        hosts, {("local", "local"): Link(1e-6, 1e9)}, grid=grid,
        learned=Learned({name: {"default": speed} for name, speed in speeds.items()}),
    )  # fmt: skip
    live = replace(information.conditions, source="this process")
    information = replace(information, conditions=live)
    return decide("all", all_resources, Coordinator(information)).document()


def speed_line(document, command="apples run --set grid=3000"):
    """Return the first lines of a plan's text, up to its table, as one."""
    return " ".join(" ".join(plan_text(document, command).partition("\n\n")[0].split()).split())


def test_a_speed_of_the_host_list_is_marked_in_the_first_lines_with_the_command_that_measures_it():
    document = under_live_weather({}, 1000)
    unmeasured = {"source": "host list", "points": None, "factor": 1.0}
    assert document["speeds"] == {"ada": unmeasured, "bob": unmeasured}
    line = speed_line(document)
    assert "speed: host list, never measured for heat" in line
    assert "`apples calibrate --set grid=3000`" in line
    low, high = document["chosen"]["interval"]
    assert low == high, "there is no interval"
    assert "never measured" not in speed_line(document, "apples run --weather static")


def test_a_speed_of_another_problem_size_is_marked_and_one_of_a_similar_size_is_not():
    speeds = {"ada": FAST, "bob": FAST}
    document = under_live_weather(speeds, 3000)
    assert document["speeds"]["ada"] == {"source": "measured", "points": 1e6, "factor": 9.0}
    assert "speed: measured on a grid of 1000000 points" in speed_line(document)
    assert "speed" not in speed_line(under_live_weather(speeds, 1900))


def test_only_hosts_whose_speed_was_not_measured_are_named():
    line = speed_line(under_live_weather({"ada": FAST}, 1000))
    assert "speed of bob: host list, never measured for heat" in line


# ----------------------------------------------------------------- the user's own
OWN = """
import numpy as np
from apples import ModelTemplate, Schedule, Allocation, time_balancing, UsageError

def halves(resources, information):
    half = information.application.rows // 2
    rest = information.application.rows - half
    if len(resources) != 2:
        return time_balancing(resources, information)
    return Schedule(tuple(Allocation(h, r, information.implementation(h))
                    for h, r in zip(resources, (half, rest))), "halves")

class Ideal(ModelTemplate):
    def __init__(self, information):
        self.columns = information.application.columns
    def computation(self, resources, rows):
        return np.array([h.seconds_per_point * self.columns for h in resources]) * rows
    def communication(self, resources):
        return np.zeros(len(resources))

def by_name(host, others, information):
    return np.array([abs(ord(host.name[0]) - ord(o.name[0])) for o in others], dtype=float)

def first(coordinator):
    schedule = coordinator.plan(next(coordinator.select_resources("single")))
    return coordinator.actuate(coordinator.best([coordinator.estimate(schedule)]))

def broken(*arguments):
    return 1 / 0

def nothing(*arguments):
    return None

def refuses(*arguments):
    raise UsageError("not on Sundays", code="not-on-sundays", day="Sunday")

class Falling(Ideal):
    def computation(self, resources, rows):
        return 1.0 / np.asarray(rows)

class Late(Ideal):
    def communication(self, resources):
        if len(resources) == 2 and resources[0].name == "bob":
            raise RuntimeError("no such pair")
        return np.zeros(len(resources))

def other_hosts(resources, information):
    strip = Allocation(information.hosts["far"], information.application.rows, "default")
    return Schedule((strip,), "other")

def torn(resources, information):
    return Schedule((Allocation(resources[0], information.application.rows - 0.5, "default"),), "torn")

def unknown(host, others, information):
    return [float("nan")] * len(others)

def too_few(host, others, information):
    return []

def leaves(*_):
    raise SystemExit(0)

def words(host, others, information):
    return ["near"] * len(others)

def on_a_gpu(resources, information):
    return Schedule((Allocation(resources[0], information.application.rows, "cuda"),), "gpu")

def asks_for_pairs(coordinator):
    return coordinator.best([coordinator.plan(r) for r in coordinator.select_resources("pairs")])

def text_rows(resources, information):
    return Schedule((Allocation(resources[0], "a", "default"),), "text")

def two_lines(*_):
    raise ValueError("no rows:\\n  none")
"""


@pytest.fixture
def own(tmp_path):
    """The name of a thing in a file of the user's own."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return lambda name: f"{path}:{name}"


def test_a_planner_of_ones_own_decides_the_strips(tmp_path, own):
    user = '[constraints]\nhosts = ["ada", "bob"]\nminimum_hosts = 2\n'
    document = planned(tmp_path, "--json", "--planner", own("halves"), user=user).document
    assert document["chosen"]["rows"] == [500, 500]
    assert document["chosen"]["planner"] == "halves"


def test_a_model_of_ones_own_decides_the_hosts(tmp_path, own):
    assert planned(tmp_path, "--json").document["chosen"]["hosts"] != ["ada", "bob", "far"]
    document = planned(tmp_path, "--json", "--model", own("Ideal")).document
    assert set(document["chosen"]["hosts"]) == {"ada", "bob", "far"}


def test_a_distance_and_a_blueprint_of_ones_own(tmp_path, own):
    assert planned(tmp_path, "--distance", own("by_name")).code == 0
    document = planned(tmp_path, "--json", "--blueprint", own("first")).document
    assert document["chosen"]["hosts"] == ["ada"]
    assert document["blueprint"] == own("first")


def test_a_file_may_name_them_too(tmp_path, own):
    user = f'[preferences]\nblueprint = "{own("first")}"\nplanner = "linear"\n'
    document = planned(tmp_path, "--json", user=user).document
    assert document["chosen"]["hosts"] == ["ada"]
    assert document["chosen"]["planner"] == "linear"


BROKEN = {"line": 29, "kind": "ZeroDivisionError"}
LEAVES = {"line": 61, "kind": "SystemExit"}


@pytest.mark.parametrize(
    ("option", "name", "code", "fields"),
    [
        ("--planner", "broken", "user-code-failed", BROKEN),
        ("--model", "broken", "user-code-failed", BROKEN),
        ("--distance", "broken", "user-code-failed", BROKEN),
        ("--blueprint", "broken", "user-code-failed", BROKEN),
        ("--planner", "nothing", "schedule-invalid", {"value": "NoneType"}),
        ("--model", "nothing", "value-type", {"field": "model", "value": "NoneType"}),
        ("--distance", "nothing", "distance-invalid", {"bound": 2, "value": "None", "line": 31}),
        ("--blueprint", "nothing", "blueprint-no-choice", {}),
        ("--planner", "refuses", "not-on-sundays", {"day": "Sunday"}),
        ("--model", "Falling", "prediction-decreasing", {"model": "Falling", "line": 38}),
        ("--model", "Late", "user-code-failed", {"line": 44, "kind": "RuntimeError"}),
        (
            "--planner",
            "other_hosts",
            "schedule-invalid",
            {"field": "hosts", "value": ["far"], "known": ["ada", "bob"]},
        ),
        ("--distance", "unknown", "distance-invalid", {"bound": 2}),
        ("--distance", "too_few", "distance-invalid", {"bound": 2, "value": "[]"}),
        ("--distance", "words", "distance-invalid", {"bound": 2, "value": "['near', 'near']"}),
        (
            "--planner",
            "on_a_gpu",
            "schedule-invalid",
            {"field": "implementation", "host": "ada", "value": "cuda", "known": ["default"]},
        ),
        ("--planner", "leaves", "user-code-failed", LEAVES),
        ("--blueprint", "leaves", "user-code-failed", LEAVES),
        ("--planner", "text_rows", "schedule-invalid", {"field": "rows", "value": "('a',)"}),
        ("--blueprint", "two_lines", "user-code-failed", {"kind": "ValueError"}),
        ("--planner", "two_lines", "user-code-failed", {"kind": "ValueError"}),
        ("--blueprint", "asks_for_pairs", "value-unknown", {"value": "pairs"}),
        ("--planner", "unknown", "user-code-signature", {"known": ["resources", "information"]}),
        ("--blueprint", "halves", "user-code-signature", {"known": ["coordinator"]}),
    ],
)
def test_an_error_in_the_users_own_code_is_2_and_its_place(
    tmp_path, own, option, name, code, fields
):
    failure = refused_plan(tmp_path, option, own(name))
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"].items() >= fields.items()
    assert "\n" not in failure["message"]
    if "line" in fields:
        assert f"{tmp_path / 'own.py'}:{fields['line']}" in failure["message"]
    if code.startswith("user-code"):
        assert failure["fields"]["file"] == str(tmp_path / "own.py")


def test_strips_of_half_a_row_are_refused_with_the_numbers(tmp_path, own):
    done = planned(tmp_path, "--planner", own("torn"), "--json")
    assert (done.code, done.failure["code"]) == (3, "no-feasible-plan")
    assert {"ada", "999.5", "999", "1000"} <= {
        word.strip(":") for word in done.failure["fields"]["reason"].replace(",", "").split()
    }


def test_a_file_that_cannot_be_imported_is_2_and_one_clear_line(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import nonesuch\n")
    failure = refused_plan(tmp_path, "--planner", f"{path}:x")
    assert (failure["exit_code"], failure["code"]) == (2, "user-code-failed")
    assert failure["fields"] == {"file": str(path), "line": 1, "kind": "ModuleNotFoundError"}


def test_every_method_of_the_paper_plans(tmp_path):
    given = {"hosts": HOSTS.replace("0.05", "1e-4"), "template": TEMPLATE}
    for blueprint in ("minimum_execution_time", "compile_time", "all_resources", "blocked"):
        document = planned(tmp_path, "--json", "--blueprint", blueprint, **given).document
        assert document["blueprint"] == blueprint
        assert sum(document["chosen"]["rows"]) == document["application"]["rows"]


# ------------------------------------------------------------------ the user's own objective
OBJECTIVE = '[objective]\nmeasure = "{file}:metric"\nbetter = "higher"\n'


def own_metric(tmp_path, body):
    file = tmp_path / "metrics.py"
    file.write_text(f"def metric(estimate):\n    {body}\n")
    return OBJECTIVE.format(file=file)


@pytest.mark.more
def test_a_plan_says_by_which_metric_of_the_users_it_was_chosen(tmp_path):
    user = own_metric(tmp_path, "return 1 / estimate.turnaround_seconds")
    given = [*files(tmp_path, user=user), "--weather", "static"]
    document = command("apples", "plan", *given, "--json", "--explain").document
    chosen = document["chosen"]
    assert chosen["objective"]["better"] == "higher"
    assert chosen["objective"]["value"] == pytest.approx(1 / chosen["turnaround_seconds"])
    values = [one["objective"] for one in document["sets"]]
    assert values == sorted(values, reverse=True)
    assert f"{tmp_path}/metrics.py:metric" in command("apples", "plan", *given).out


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        ("return estimate.price", "user-code-failed", 2),
        ("return float('inf')", "objective-invalid", 1),
    ],
)
def test_a_metric_that_fails_ends_with_2_its_file_and_its_line(tmp_path, body, code, line):
    failure = refused_plan(tmp_path, user=own_metric(tmp_path, body))
    assert (failure["exit_code"], failure["code"]) == (2, code)
    fields = failure["fields"]
    assert (fields["file"], fields["line"]) == (str(tmp_path / "metrics.py"), line)
    assert code == "user-code-failed" or (fields["value"], fields["hosts"]) == (
        "inf",
        ["ada"],
    )


def test_what_a_metric_prints_stands_on_stderr_and_the_answer_alone_on_stdout(tmp_path):
    user = own_metric(tmp_path, "print('asked'); return estimate.turnaround_seconds")
    (tmp_path / "metrics.py").write_text(
        "print('loaded')\n" + (tmp_path / "metrics.py").read_text()
    )
    given = ["plan", *files(tmp_path, user=user), "--weather", "static", "--json"]
    done = command("apples", *given)
    assert done.document["chosen"]["objective"]
    assert {"loaded", "asked"} <= {*done.err.splitlines()}


def test_hat_check_reads_the_file_of_a_metric_and_does_not_run_it(tmp_path):
    user = tmp_path / "user.toml"
    user.write_text(own_metric(tmp_path, "raise SystemExit(7)"))
    assert command("hat", "check", user).code == 0
    user.write_text(user.read_text().replace(":metric", ":metrik"))
    done = command("hat", "check", user)
    assert (done.code, "defines no 'metrik'" in done.out + done.err) == (2, True)
    (tmp_path / "metrics.py").write_text("def metric(:\n")
    done = command("hat", "check", user)
    assert (done.code, "metrics.py:1 is no Python" in done.out + done.err) == (2, True)
    user.write_text('[objective]\nmeasure = "mine:metric"\n')
    done = command("hat", "check", user)
    assert (done.code, "must be 'lower' or 'higher'" in done.out + done.err) == (2, True)


def test_static_plans_have_no_start_unless_the_list_says_one(tmp_path):
    given = files(tmp_path)
    plain = command("apples", "plan", *given, "--weather", "static", "--json").document["chosen"]
    assert (plain["start_seconds"], plain["wait_seconds"]) == (0.0, 0.0)
    assert plain["turnaround_seconds"] == plain["execution_seconds"]
    late = HOSTS.replace('name = "ada"\n', 'name = "ada"\nstart_seconds = 1e6\n')
    given = files(tmp_path, hosts=late)
    other = command("apples", "plan", *given, "--weather", "static", "--json").document["chosen"]
    assert "ada" in plain["hosts"]
    assert "ada" not in other["hosts"]

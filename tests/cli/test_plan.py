"""`apples plan`: codes, faces, options, and the user's own code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import HOSTS, TEMPLATE, command, files, planned

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


# ------------------------------------------------------------------ as a process
def test_bad_input_ends_with_2_and_one_line_on_stderr(tmp_path):
    done = real("apples", "plan", *files(tmp_path, user="[limits]"), "--weather", "static")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{tmp_path}/user.toml:1: unknown field 'limits'\n"


def test_no_plan_ends_with_3_the_reasons_and_what_would_help(tmp_path):
    hosts = HOSTS.replace("4 GB", "1 MB")
    done = real("apples", "plan", *files(tmp_path, hosts=hosts), "--weather", "static", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 3
    assert document["chosen"] is None
    assert document["rejected_total"] == len(document["rejected"]) > 0
    assert all(len(r["figures"]) == 2 for r in document["rejected"])
    assert document["remedy"].startswith("fits if grid is at most")
    assert done.stderr.startswith("apples: no feasible plan: ")
    assert done.stderr.count("\n") == 1


def test_help_imports_none_of_the_heavy_libraries():
    code = (
        "import sys; sys.argv = ['apples', '--help']\n"
        "from apples.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "typer" in loaded
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
    assert lines[0].startswith("Run on ")
    assert " an iteration (" in lines[0]
    assert lines[-1].startswith("run it:  apples run --hosts ")


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
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "grid"], "apples: --set grid: must be NAME=VALUE"),
        (["--set", "grid=0"], "--set: grid: must be at least 1 (is 0)"),
        (["--set", "grid=x"], "--set: grid: must be a whole number (is 'x')"),
        (["--set", "grit=5"], "--set: grit: there is no such parameter: did you mean 'grid'?"),
        (
            ["--weather", "sunny"],
            "apples: --weather 'sunny': neither static nor live, and no file of that name",
        ),
        (
            ["--planner", "linaer"],
            (
                "apples: planner 'linaer': did you mean 'linear'? known are blocked, linear, milp, "
                "rectangles, square_blocks, strips_or_rectangles, time_balancing; your own is module:name "
                "or file.py:name"
            ),
        ),
        (
            ["--distance", "far"],
            (
                "apples: distance 'far': known are communication, paper; "
                "your own is module:name or file.py:name"
            ),
        ),
        (
            ["--model", "strp"],
            (
                "apples: model 'strp': did you mean 'strip'? known are strip; "
                "your own is module:name or file.py:name"
            ),
        ),
        (
            ["--blueprint", "block"],
            (
                "apples: blueprint 'block': did you mean 'blocked'? known are all_resources, blocked, "
                "compile_time, decider, migrate, minimum_execution_time, redistribute, single_host, "
                "square_blocks; "
                "your own is module:name or file.py:name"
            ),
        ),
        (["--planner", "no.py:x"], "apples: planner 'no.py:x': there is no file no.py"),
        (["--planner", "json:nothing"], "apples: planner 'json:nothing': json has no 'nothing'"),
        (
            ["--model", "sys:version"],
            "apples: model 'sys:version': 'version' cannot be called",
        ),
        (
            ["--model", "nonesuch:x"],
            (
                "apples: model 'nonesuch:x': importing nonesuch failed: ModuleNotFoundError: "
                "No module named 'nonesuch'"
            ),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_value_is_2_and_one_clear_line(tmp_path, options, said):
    done = planned(tmp_path, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err == said + "\n"


@pytest.mark.parametrize("option", ["--hosts", "--template", "--user"])
def test_a_file_that_is_not_there_is_2_and_one_clear_line(tmp_path, option):
    given = files(tmp_path)
    given[given.index(option) + 1] = str(tmp_path / "none.toml")
    done = command("apples", "plan", *given, "--weather", "static")
    assert (done.code, done.err) == (2, f"{tmp_path}/none.toml: there is no such file\n")


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
    done = command("apples", "plan", "--user", "wishes.toml")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        "hosts.toml: there is no such file (--hosts names another)",
        "template.toml: there is no such file (--template names another)",
        "wishes.toml: there is no such file",
    ]


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ('[constraints]\nhosts = ["abroad"]', "2: constraints.hosts[0]: 'abroad' is no host of "),
        ('[constraints]\nsites = ["ada"]', "2: constraints.sites[0]: 'ada' is no site of "),
        (
            '[constraints]\nexclude = ["adb"]',
            "2: constraints.exclude[0]: 'adb' is no host or site",
        ),
        (
            '[objective]\nmeasure = "speedup"\nreference = "local"',
            "3: objective.reference: 'local' is no host of ",
        ),
    ],
)
def test_a_user_file_naming_what_the_list_does_not_have_is_2(tmp_path, user, said):
    done = planned(tmp_path, user=user)
    assert done.code == 2
    assert done.err.startswith(f"{tmp_path}/user.toml:{said}")


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
    assert low < high


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "nws.weather/1"}', "[]"])
def test_a_file_that_is_no_weather_is_2_and_one_clear_line(tmp_path, text):
    sky = tmp_path / "sky.json"
    sky.write_text(text)
    done = planned(tmp_path, "--weather", sky)
    assert done.code == 2
    assert done.err.startswith(f"apples: {sky}: ")
    assert done.err.count("\n") == 1


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
    raise UsageError("not on Sundays")

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


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--planner", "broken", "failed at {file}:29: ZeroDivisionError: division by zero"),
        ("--model", "broken", "failed at {file}:29: ZeroDivisionError: division by zero"),
        ("--distance", "broken", "failed at {file}:29: ZeroDivisionError: division by zero"),
        ("--blueprint", "broken", "failed at {file}:29: ZeroDivisionError: division by zero"),
        ("--planner", "nothing", "the planner returned no Schedule but NoneType"),
        ("--model", "nothing", "the model is no ModelTemplate but NoneType"),
        ("--distance", "nothing", "the distance must give a number for each of 2 hosts, not None"),
        ("--blueprint", "nothing", "ended without asking for the best candidate"),
        ("--planner", "refuses", "apples: not on Sundays"),
        ("--model", "Falling", "Falling: computation falls as rows grow"),
        ("--model", "Late", "failed at {file}:44: RuntimeError: no such pair"),
        ("--planner", "other_hosts", "the planner was given ada, bob and planned for far"),
        ("--distance", "unknown", "must give a number for each of 2 hosts"),
        ("--distance", "too_few", "must give a number for each of 2 hosts"),
        ("--distance", "words", "must give a number for each of 2 hosts, not ['near', 'near']"),
        ("--planner", "on_a_gpu", "has ada run 'cuda': the template has default"),
        ("--planner", "leaves", "failed at {file}:61: SystemExit: 0"),
        ("--blueprint", "leaves", "failed at {file}:61: SystemExit: 0"),
        (
            "--blueprint",
            "asks_for_pairs",
            "select_resources('pairs'): known sets are search, single",
        ),
        ("--planner", "unknown", "cannot be called as unknown(resources, information)"),
        ("--blueprint", "halves", "cannot be called as halves(coordinator)"),
    ],
)
def test_what_fails_in_the_users_own_code_is_2_and_one_clear_line(
    tmp_path, own, option, name, said
):
    done = planned(tmp_path, option, own(name))
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert said.format(file=tmp_path / "own.py") in done.err
    assert "internal error" not in done.err


def test_strips_of_half_a_row_are_refused_with_the_numbers(tmp_path, own):
    done = planned(tmp_path, "--planner", own("torn"))
    assert done.code == 3
    assert "ada would compute 999.5 rows, not 999 or 1000" in done.err


def test_a_file_that_cannot_be_imported_is_2_and_one_clear_line(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import nonesuch\n")
    done = planned(tmp_path, "--planner", f"{path}:x")
    assert done.code == 2
    assert done.err == (
        f"apples: planner '{path}:x': importing {path} failed at {path}:1: ModuleNotFoundError: "
        "No module named 'nonesuch'\n"
    )


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
    text = command("apples", "plan", *given).out
    assert f"By {tmp_path}/metrics.py:metric, the higher the better: " in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return estimate.price",
            "metrics.py:2: AttributeError: 'Estimate' object has no attribute",
        ),
        ("return float('inf')", "metrics.py:1: gave inf for ada"),
    ],
)
def test_a_metric_that_fails_ends_with_2_its_file_and_its_line(tmp_path, body, said):
    done = command(
        "apples", "plan", *files(tmp_path, user=own_metric(tmp_path, body)), "--weather", "static"
    )
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


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

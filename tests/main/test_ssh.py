"""The commands with hosts that are other machines: real ssh to loopback addresses of an sshd of ours."""

import json
from pathlib import Path

import pytest
from commands import command

from apples.launch import remote_hosts
from apples.resources import read_host_list

EXAMPLE = Path(__file__).parents[2] / "examples" / "jacobi2d"
FILES = ["--template", str(EXAMPLE / "template.toml"), "--user", str(EXAMPLE / "user.toml")]
SMALL = [*FILES, "--set", "grid=200", "--set", "iterations=20"]


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def apples(*words):
    """Exit code, what was printed, and the talk."""
    done = command("apples", *words)
    return done.code, done.out, done.err


@pytest.fixture
def hosts(sshd, tmp_path):
    """Writes a host list of so many hosts, and dead ones."""

    def write(count=2, dead=0, extra=""):
        path = tmp_path / "hosts.toml"
        path.write_text(sshd.host_list(count, dead=dead, extra=extra))
        return str(path)

    return write


@pytest.mark.ssh
def test_other_machines_are_reached_over_ssh_unless_they_are_to_be_emulated(hosts):
    words = ("run", "--hosts", hosts(2), *SMALL, "--weather", "static", "--dry-run", "--json")
    code, out, talk = apples(*words)
    assert code == 0, talk
    assert "machines" in json.loads(out)["command"]["files"]
    code, out, _ = apples(*words, "--actuator", "local")
    assert "machines" not in json.loads(out)["command"]["files"]


def test_the_examples_stay_on_this_machine():
    assert remote_hosts(read_host_list(EXAMPLE / "hosts.toml")) == ()


@pytest.mark.ssh
@pytest.mark.mpi
def test_a_dead_host_is_named_and_the_plan_made_again_before_the_launch(hosts):
    words = ("--weather", "static", "--verify", "full", "--json")
    code, out, talk = apples("run", "--hosts", hosts(2, dead=1), *SMALL, *words)
    assert code == 0, talk
    document = json.loads(out)
    assert set(document["plan"]["chosen"]["hosts"]) <= {"h1", "h2"}
    (rejection,) = [r for r in document["plan"]["rejected"] if r["filter"] == "fitness"]
    assert rejection["hosts"] == ["dead1"]
    assert "127.0.0.9" in rejection["reason"]
    assert talk.startswith("warning: dead1 ")
    assert "127.0.0.9" in talk
    assert document["verified"] is True


@pytest.mark.more
@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.parametrize("malleable", [True, False])
def test_a_detached_job_is_planned_without_the_dead_host_too(hosts, tmp_path, malleable):
    text = (EXAMPLE / "template.toml").read_text().replace("solver.py", str(EXAMPLE / "solver.py"))
    template = tmp_path / "template.toml"
    template.write_text(text.replace("malleable = true", f"malleable = {malleable}".lower()))
    words = ["--template", template, *FILES[2:], "--set", "grid=200", "--set", "iterations=20"]
    words += [
        "--weather",
        "static",
        "--actuator",
        "ssh",
        "--verify",
        "sample",
        "--detach",
        "--json",
    ]
    done = command("apples", "run", "--hosts", hosts(2, dead=1), *words)
    assert set(done.document["hosts"]) <= {"h1", "h2"}
    waited = command("apples", "wait", done.document["id"], "--json")
    assert (waited.code, waited.document["verified"]) == (0, True)


@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.more
def test_rectangles_run_over_ssh_in_the_foreground_and_in_a_job_that_is_not_moved(hosts, tmp_path):
    text = (EXAMPLE / "template.toml").read_text().replace("solver.py", str(EXAMPLE / "solver.py"))
    template = tmp_path / "template.toml"
    template.write_text(text.replace("malleable = true", "malleable = false"))
    words = ["--template", template, *FILES[2:], "--set", "grid=200", "--set", "iterations=20"]
    words += ["--weather", "static", "--actuator", "ssh", "--blueprint", "square_blocks"]
    run = ["run", "--hosts", hosts(4), *words, "--json", "--verify", "sample"]
    done = command("apples", *run)
    assert done.code == 0, done.err
    assert (done.document["verified"], done.document["verification"]["how"]) == (True, "sample")
    tiles = [one["rectangle"] for one in done.document["execution"]["hosts"]]
    assert {(one["rows"], one["columns"]) for one in tiles} == {(100, 100)}
    waited = command(
        "apples", "wait", command("apples", *run, "--detach").document["id"], "--json"
    )
    assert (waited.code, waited.document["verified"]) == (0, True)
    assert [one["rectangle"] for one in waited.document["execution"]["hosts"]] == tiles


@pytest.mark.ssh
def test_where_all_hosts_are_unfit_there_is_no_plan_and_every_reason(hosts):
    words = ("--weather", "static", "--actuator", "ssh")
    done = command("apples", "run", "--hosts", hosts(0, dead=2), *SMALL, *words, "--json")
    assert (done.code, done.failure["code"]) == (3, "no-feasible-plan")
    fields = done.failure["fields"]
    assert (fields["filter"], fields["hosts"], fields["refusals"]) == ("fitness", ["dead1"], 2)


@pytest.mark.ssh
@pytest.mark.mpi
def test_a_live_plan_is_measured_over_ssh_and_remembered(hosts, tmp_path):
    code, out, talk = apples("plan", "--hosts", hosts(2, dead=1), *SMALL, "--explain", "--json")
    assert code == 0, talk
    plan = json.loads(out)
    assert plan["weather"]["kind"] == "measured"
    strips = {one["host"]: one for one in plan["chosen"]["strips"]}
    # Hosts that are parts of one machine are read in two rounds, which their forecasts are made of.
    assert {one["cpu_samples"] for one in strips.values()} == {2}, strips
    remembered = json.loads((tmp_path / "state/apples/measurements.json").read_text())
    samples = {(e["resource"], e["host"], e["peer"]): e["samples"] for e in remembered["series"]}
    ways = [("h1@127.0.0.2", "h2@127.0.0.3"), ("h2@127.0.0.3", "h1@127.0.0.2")]
    measured = {way for way in ways if ("bandwidthTcp", *way) in samples}
    assert measured  # one way may tell enough of the other
    assert all(("latencyTcp", *way) in samples for way in measured)
    assert len(samples["availableCpu", "h1@127.0.0.2", None]) == 1  # next time a look is one
    assert "dead1" in talk


@pytest.mark.ssh
def test_doctor_prints_the_checks_of_every_host_as_a_table(hosts):
    code, out, _ = apples("doctor", "--hosts", hosts(1, dead=1))
    assert code == 4
    first, _, header, well, dead, *rest = out.splitlines()
    assert first.startswith("1 of 2 ")
    assert first.endswith("dead1")
    checks = "host ssh python mpi apples program directory disk shm name back clock meeting"
    assert header.split() == checks.split()
    assert well.startswith("h1 ")
    assert dead.split() == ["dead1", "fail", *["-"] * 11]
    assert any(line.startswith("fail  dead1 ") and "127.0.0.9" in line for line in rest)
    code, out, _ = apples("doctor", "--hosts", hosts(1, dead=1), "--json")
    document = json.loads(out)
    assert document["schema"] == "apples.doctor/1"
    assert [(h["host"], h["fit"]) for h in document["hosts"]] == [("h1", True), ("dead1", False)]
    assert document["hosts"][0]["checks"][-1]["name"] == "meeting"


@pytest.mark.ssh
def test_a_dry_run_shows_machine_file_and_command_lines_and_connects_to_nobody(hosts):
    words = ("--weather", "static", "--dry-run")
    path = hosts(0, dead=2)
    done = command("apples", "run", "--hosts", path, *SMALL, *words, "--json")
    assert (done.code, done.failure["code"]) == (4, "address-taken")
    assert done.failure["fields"]["value"] == "127.0.0.9"
    Path(path).write_text(Path(path).read_text().replace("127.0.0.9", "127.0.0.8", 1))
    code, out, talk = apples("run", "--hosts", path, *SMALL, *words, "--json")
    assert code == 0, talk
    launched = json.loads(out)["command"]
    assert launched["files"]["machines"].split() == ["127.0.0.8:1", "127.0.0.9:1"]
    assert launched["argv"][launched["argv"].index("-f") + 1] == "machines"
    launch = json.loads(launched["files"]["launch.json"])
    assert [there["ssh"][0] for there in launch["remote"]] == ["ssh", "ssh"]
    code, out, _ = apples("run", "--hosts", path, *SMALL, *words)
    assert out.startswith("# machines\n127.0.0.8:1\n127.0.0.9:1\n")


TOY = """
import json, os
task = json.load(open(os.environ["APPLES_TASK"]))
server = os.environ["SSH_CONNECTION"].split()[2]
print(json.dumps({"event": "ready", "protocol": 1, "program": "toy", "version": "1", "ranks": 1}))
for rows in task["sizes"]:
    seconds = 1e-9 * int(server.rpartition(".")[2])
    told = {"rows": rows, "seconds_per_point": seconds, "error": 0.0, "repeats": 3}
    print(json.dumps({"event": "calibration", **told}))
print(json.dumps({"event": "done"}))
"""


@pytest.mark.ssh
def test_calibration_measures_on_the_host_itself(hosts, tmp_path):
    (tmp_path / "toy.py").write_text(TOY)
    template = tmp_path / "toy.toml"
    program = 'name = "toy"\nprogram = ["{python}", "-S", "toy.py"]\n'
    parameters = "[parameters.grid]\ndefault = 60\n[parameters.iterations]\ndefault = 1\n"
    template.write_text(program + parameters)
    words = ("--template", str(template), *FILES[2:], "--rows", "30", "--json")
    code, out, talk = apples("calibrate", "--hosts", hosts(2, dead=1), *words)
    assert code == 0, talk
    speeds = json.loads(out)["hosts"]
    measured = {host: speed["default"]["seconds_per_point"] for host, speed in speeds.items()}
    assert measured == {"h1": [pytest.approx(2e-9)], "h2": [pytest.approx(3e-9)]}
    assert "warning: dead1 " in talk

"""`apples simulate` as a user sees it: stdout, stderr, exit codes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer import Typer
from typer.testing import CliRunner

from apples.cli.simulate import simulate as simulate_command
from apples.errors import ApplesError

app = Typer()
app.callback()(lambda: None)
app.command("simulate")(simulate_command)

SAMPLE = str(Path(__file__).parent / "sample.swf.gz")
POLICY = '''
"""A user's own policy."""

from dataclasses import dataclass

from apples.jobs import Start
from apples.scheduler.policy import SchedulingPolicy


@dataclass(frozen=True)
class Patient(SchedulingPolicy):
    """First come, first served, but never more than so many jobs at once."""

    most: int = 3

    def decide(self, cluster):
        running, free = len(cluster.running), cluster.free
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if running >= self.most or nodes > free:
                return
            running, free = running + 1, free - nodes
            yield Start(job.id, nodes)


class Broken(SchedulingPolicy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, 1 // 0)


class Empty:
    pass
'''


def run(*words):
    return CliRunner().invoke(app, ["simulate", *map(str, words)])


def figures(*words):
    answer = run(*words, "--json")
    assert answer.exit_code == 0, answer.exception
    return json.loads(answer.stdout)


def refusal(*words):
    answer = run(*words)
    assert isinstance(answer.exception, ApplesError), answer.output
    assert answer.exception.exit_code == 2
    assert answer.stdout == ""
    return str(answer.exception)


SIXTY_FOUR = ("--processors", 64)


def test_the_figures_are_those_of_the_schema():
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    assert answer["schema"] == "apples.simulation/1"
    promised = (
        "jobs dropped mean_wait mean_response mean_slowdown mean_bounded_slowdown percentiles "
        "makespan utilisation energy malleable_starts mates resizes "
        "simulation_seconds read_seconds"
    )
    assert set(promised.split()) <= set(answer)
    assert answer["jobs"] == 150
    assert answer["energy"] is None


def test_the_csv_gives_the_means_of_the_json(tmp_path):
    path = tmp_path / "jobs.csv"
    answer = figures(SAMPLE, "--policy", "sd", "--nodes", 16, "--cores-per-node", 4, "--csv", path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    assert list(rows[0])[:5] == ["job", "submit", "start", "end", "processors"]
    response = column["end"] - column["submit"]
    assert (column["start"] - column["submit"]).mean() == answer["mean_wait"]
    assert response.mean() == answer["mean_response"]
    assert (response / column["run"]).mean() == pytest.approx(answer["mean_slowdown"], rel=1e-12)
    assert column["guest"].sum() == answer["malleable_starts"] > 0
    assert column["resizes"].sum() == answer["resizes"]


def test_text_and_json_say_the_same():
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    text = run(SAMPLE, "--policy", "easy", *SIXTY_FOUR).stdout
    assert text.startswith(f"easy on sample.swf.gz: mean wait {answer['mean_wait']:.6g} s")


def test_a_users_own_policy_with_an_option(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    three = figures(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR)
    one = figures(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR, "--option", "most=1")
    assert one["mean_wait"] > three["mean_wait"]
    assert one["engine"] == "events"


def test_the_general_engine_can_be_asked_for():
    fast = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    slow = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR, "--option", "engine=events")
    assert slow["engine"] == "events" != fast["engine"]
    assert slow["mean_wait"] == fast["mean_wait"]


def test_energy_is_idle_power_all_the_time_and_more_for_busy_nodes():
    watts = ("--option", "idle_watts=100", "--option", "busy_watts=300")
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR, *watts)
    idle = 100 * 64 * answer["makespan"]
    assert answer["energy"] == pytest.approx(idle * (1 + 2 * answer["utilisation"]))


def test_what_was_dropped_is_counted_and_said(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(
        "1 0 -1 0 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 5 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n"
    )
    answer = run(path, "--policy", "easy", "--processors", 8, "--json")
    assert json.loads(answer.stdout)["dropped"]["no run time"] == 1
    assert "2 records, 1 simulated: dropped 1 (no run time)" in answer.stderr
    assert refusal(path, "--policy", "easy", "--processors", 8, "--strict") == (
        f"{path}:1: no run time (--strict)"
    )


def test_random_failures_are_those_of_the_seed():
    risk = ("--option", "mtbf=3e5", "--option", "mttr=3600", "--policy", "easy", *SIXTY_FOUR)
    one, again, other = (figures(SAMPLE, *risk, "--seed", seed) for seed in (1, 1, 2))
    assert one["restarts"] > 0
    assert one["mean_wait"] == again["mean_wait"] != other["mean_wait"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "esay", *SIXTY_FOUR), "policy 'esay': not one of fcfs, first_fit"),
        (("--policy", "none.py:P", *SIXTY_FOUR), "no file none.py"),
        (("--policy", "json:nothing", *SIXTY_FOUR), "json has no nothing"),
        (("--policy", "easy"), "--processors, or --nodes"),
        (("--policy", "easy", "--processors", 0), "at least one"),
        (("--policy", "easy", *SIXTY_FOUR, "--nodes", 3), "go together"),
        (("--policy", "easy", *SIXTY_FOUR, "--nodes", 3, "--cores-per-node", 4), "are not 64"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "depth"), "of the form name=value"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "deep=1"), "option deep: policy easy has"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "order=best"), "order 'best'"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "ties=none"), "ties 'none'"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "clean=none"), "cleaning rule 'none'"),
        (("--policy", "fcfs", *SIXTY_FOUR, "--option", "ties=predictsim"), "easy only"),
        (("--policy", "easy", *SIXTY_FOUR, "--malleable", "1.5"), "malleable fraction 1.5"),
        (("--policy", "sd", *SIXTY_FOUR), "leave a guest none"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "idle_watts=3"), "go together"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "idle_watts=x"), "not a number"),
        (("--policy", "easy", *SIXTY_FOUR, "--option", "failures=none.csv"), "No such file"),
        (("--policy", "easy", *SIXTY_FOUR, "--csv", "/nowhere/jobs.csv"), "No such file"),
        (("--policy", "sd", *SIXTY_FOUR, "--option", "max_slowdown=lots"), "max_slowdown 'lots'"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_two(words, message):
    assert message in refusal(SAMPLE, *words)


def test_a_policy_that_breaks_is_reported_with_its_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    assert "mine.py:28: ZeroDivisionError" in refusal(
        SAMPLE, "--policy", f"{path}:Broken", *SIXTY_FOUR
    )
    assert "no method decide" in refusal(SAMPLE, "--policy", f"{path}:Empty", *SIXTY_FOUR)
    path.write_text("def")
    assert "SyntaxError" in refusal(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR)


@pytest.mark.slow
def test_the_program_ends_with_two_and_one_line_on_stderr():
    """Slow: an interpreter is started."""
    answer = subprocess.run(
        [sys.executable, "-c", "from apples.cli.main import main; main()", "simulate", "none.swf",
         "--policy", "easy", "--processors", "4"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert "none.swf: No such file or directory" in answer.stderr

"""Runs whose messages are counted: what they answer, through resizes, and what is refused."""

import os
import shutil
from pathlib import Path

import pytest
from commands import EXAMPLE, command, refused
from sites import SHORT, Site
from waiting import until

from apples import RunSpec, jobs
from apples.jobs import run_page, run_text, store
from apples.launch import MessageCounts

SAMPLE = Path(__file__).parents[2] / "jobs" / "sample"
HOSTS = """
[[host]]
name = "ada"
slots = 2
seconds_per_point = 1e-8
[[host]]
name = "bob"
seconds_per_point = 1e-8
"""

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
]


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.more
def test_a_run_says_which_host_sent_which_how_much_on_all_its_faces(tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(HOSTS)
    files = [
        "--hosts",
        hosts,
        "--template",
        EXAMPLE / "template.toml",
        "--user",
        EXAMPLE / "user.toml",
    ]
    options = [
        "--weather",
        "static",
        "--blueprint",
        "all_resources",
        "--no-verify",
        "--count-messages",
    ]
    grid, iterations = 300, 40
    settings = ["--set", f"grid={grid}", "--set", f"iterations={iterations}"]
    done = command("apples", "run", *map(str, files), *options, *settings, "--json")
    assert done.code == 0, done.err
    found = done.document["execution"]["messages"]
    assert (found["source"], found["hosts"], found["missed"]) == ("counted", ["ada", "bob"], 0)
    assert [(one["host"], one["world"], one["rank"]) for one in found["ranks"]] == [
        ("ada", 0, 0), ("ada", 0, 1), ("bob", 0, 2),
    ]  # fmt: skip
    halo = grid * 8 * iterations
    rows = found["rank_bytes"]
    for one, other in ((0, 1), (1, 0), (1, 2), (2, 1)):
        assert halo <= rows[one][other]
    result = (grid * 8) * done.document["execution"]["hosts"][1]["rows"]
    assert result <= rows[2][0] < result + halo / 4  # the result, and nothing like a halo
    assert found["bytes"][0] == [sum(map(sum, (r[:2] for r in rows[:2]))), rows[0][2] + rows[1][2]]
    assert "between hosts (counted)" in run_text(done.document, "again")
    assert "Rank by rank" in run_page(done.document)
    assert not list(tmp_path.glob("apples-messages-*"))


def test_a_run_that_nobody_counts_has_what_its_template_declares(tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(HOSTS)
    files = [f"--{name}={EXAMPLE / f'{name}.toml'}" for name in ("template", "user")]
    small = ["--weather", "static", "--no-verify", "--set", "grid=100", "--set", "iterations=5"]
    options = [f"--hosts={hosts}", "--blueprint", "all_resources", *small, "--json"]
    done = command("apples", "run", *files, *options)
    assert done.code == 0, done.err
    found, halo = done.document["execution"]["messages"], 100 * 8 * 5
    assert (found["source"], found["hosts"]) == ("declared", ["ada", "bob"])
    assert found["rank_bytes"] == [[0, halo, 0], [halo, 0, halo], [0, halo, 0]]
    assert found["bytes"] == [[2 * halo, halo], [halo, 0]]
    assert found["rank_messages"][0] == [0, 5, 0]
    assert "between hosts" not in run_text(done.document, "again")
    assert "(declared)" in run_page(done.document)


@pytest.mark.more
def test_a_job_is_counted_while_it_runs_and_through_resizes():
    files = [SAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
    settings = {"iterations": 1_000_000, "pause": 0.005}
    spec = RunSpec(*files, settings=settings, weather="static", verify=False, count_messages=True)
    job = jobs.submit(spec)
    try:
        counts = MessageCounts(store.record(job.id).folder / "messages", Path())
        until(lambda: sum(map(sum, counts.read().messages)) > 50)
        before = counts.read()
        assert set(before.hosts) == {"ada", "bob", "cleo"}
        jobs.resize(job.id, {"ada": 1, "dan": 1})
        jobs.resize(job.id, {"bob": 1, "ada": 1})
        names = ("ada", "bob", "dan")
        until(lambda: any(one.world and one.host == "bob" for one in counts.read(names).ranks))

        def sent(after):
            """Messages from ada to the second world on bob."""
            found = counts.read(names)
            place = {(one.host, one.world): number for number, one in enumerate(found.ranks)}
            again = max(world for host, world in place if host == "bob")
            return found.messages[place["ada", 0]][place["bob", again]] > after

        until(lambda: sent(10))
        assert counts.read().missed == 0
    finally:
        jobs.cancel(job.id)


@pytest.mark.more
def test_a_job_of_the_scheduler_is_counted(tmp_path):
    site = Site(tmp_path / "state", "fcfs")
    site.start()
    try:
        job = site.submit("--min", "2", *SHORT, "--count-messages")
        found = site.ask("wait", job)["execution"]["messages"]
        assert len(found["hosts"]) == 2
        assert min(found["messages"][0][1], found["messages"][1][0]) >= 20
    finally:
        site.close()


@pytest.mark.more
def test_where_nobody_could_read_the_counts_they_are_refused(tmp_path):
    (tmp_path / "hosts.toml").write_text(HOSTS)
    files = [f"--hosts={tmp_path / 'hosts.toml'}"]
    files += [f"--{name}={EXAMPLE / f'{name}.toml'}" for name in ("template", "user")]
    options = ["--actuator", "slurm", "--count-messages"]
    done = command("apples", "run", *files, "--weather", "static", *options)
    assert (done.code, done.error_codes) == (2, ["option-conflict"])
    assert "--count-messages" in done.err
    assert "--actuator slurm" in done.err
    assert not list(tmp_path.glob("apples-messages-*"))


def test_a_path_that_the_loader_would_cut_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    files = [f"--{name}={EXAMPLE / f'{name}.toml'}" for name in ("hosts", "template", "user")]
    failure = refused("apples", "run", *files, "--weather", "static", "--count-messages")
    assert (failure["exit_code"], failure["code"]) == (4, "directory-unusable")
    assert failure["fields"]["file"].startswith(str(tmp_path / "my state"))


@pytest.mark.more
def test_a_run_in_which_no_rank_could_count_says_so(monkeypatch):
    monkeypatch.setattr(MessageCounts, "environment", lambda _: {})
    files = [f"--{name}={EXAMPLE / f'{name}.toml'}" for name in ("hosts", "template", "user")]
    small = ["--weather", "static", "--no-verify", "--set", "grid=100", "--set", "iterations=5"]
    done = command("apples", "run", *files, *small, "--count-messages", "--json")
    assert done.code == 0
    assert done.document["execution"]["messages"]["source"] == "declared"
    (warning,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert "messages" in warning


def test_a_library_that_does_not_compile_is_one_clear_line(tmp_path, monkeypatch):
    broken = tmp_path / "broken.c"
    broken.write_text("int broken( {\n")
    monkeypatch.setattr("apples.launch.message_counts.counter.SOURCE", broken)
    files = [f"--{name}={EXAMPLE / f'{name}.toml'}" for name in ("hosts", "template", "user")]
    failure = refused("apples", "run", *files, "--weather", "static", "--count-messages")
    assert (failure["exit_code"], failure["code"]) == (4, "library-not-built")
    assert failure["fields"]["tool"].endswith("mpicc")
    assert "broken.c" in failure["message"]

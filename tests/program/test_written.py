"""Programs written from the documentation alone: one result by hand, planned, detached, and through resizes."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command

from apples.applications import new
from apples.launch import ProblemSize, check_program, hydra
from apples.malleable import HostShare, ResizeDone, rehearse

HERE = Path(__file__).parent / "written"
PARAMETERS = {
    "sor": {"grid": 40, "iterations": 60, "omega": 1.5},
    "wave": {"grid": 60, "iterations": 400, "speed": 0.5},
    "tiles": {"tiles": 24, "points": 500, "steps": 300},
}
STRUCTURE = {"tiles": 'rows = "tiles"\ncolumns = "points"\niterations = "steps"\n'}
LOOP = {"sor": "iterations", "wave": "iterations", "tiles": "steps"}
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
HOSTS = "".join(
    f'[[host]]\nname = "{host}"\nslots = {slots}\nseconds_per_point = {1 + k}e-8\n'
    for k, (host, slots) in enumerate(SLOTS.items())
)

pytestmark = pytest.mark.mpi
EACH = pytest.mark.parametrize("name", list(PARAMETERS))


@pytest.fixture
def folder(tmp_path, name, monkeypatch):
    """A folder with the program, its template and hosts; runs know nothing of the user's own state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    parameters = "".join(f"[parameters.{k}]\ndefault = {v}\n" for k, v in PARAMETERS[name].items())
    (tmp_path / "template.toml").write_text(
        f'name = "{name}"\nprogram = ["{{python}}", "{name}.py"]\nmalleable = true\n{parameters}'
        f"[structure]\n{STRUCTURE.get(name, '')}"
    )
    (tmp_path / "hosts.toml").write_text(HOSTS)
    (tmp_path / f"{name}.py").write_text((HERE / f"{name}.py").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def by_hand(program, *settings, ranks=1):
    """Run a program without an agent; return its digest as far as it is printed."""
    launcher = [hydra.mpiexec(), *hydra.OPTIONS, "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*launcher, sys.executable, str(program), *settings],
        env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return digest(done.stdout)


def digest(said):
    return re.search(r"sha256 ([0-9a-f]{16})$", said, re.MULTILINE)[1]


@pytest.mark.more
@EACH
def test_it_runs_by_hand_planned_and_detached_and_is_verified(folder, name):
    alone = by_hand(folder / f"{name}.py")
    assert by_hand(folder / f"{name}.py", ranks=3) == alone
    ran = command("apples", "run", "--weather", "static", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["verified"] is True
    assert ran.document["result_sha256"].startswith(alone)
    begun = command("apples", "run", "--detach", "--weather", "static", "--json")
    assert begun.code == 0, begun.err
    ended = command("apples", "wait", begun.document["id"], "--json")
    assert ended.code == 0, ended.err
    assert ended.document["verified"] is True
    assert ended.document["result_sha256"].startswith(alone)


def maps(draw):
    """Yield random maps for ever."""
    while True:
        hosts = draw.sample(list(SLOTS), draw.randint(1, len(SLOTS)))
        yield [HostShare(host, draw.choice([0.25, 1.0, 2.0, 3.5])) for host in hosts]


@pytest.mark.more
@EACH
def test_twenty_random_resizes_change_no_bit(folder, name):
    """Jobs one after another until so many were done; one that was over before its first resize is made longer."""
    draw, done, iterations = random.Random(name), 0, 20 * PARAMETERS[name][LOOP[name]]
    program = folder / f"{name}.py"
    while done < 20:
        setting = f"{LOOP[name]}={iterations}"
        alone = by_hand(program, "--set", setting)
        argv = [sys.executable, str(program), "--set", setting]
        run = rehearse(argv, SLOTS, [HostShare("ada")], maps(draw))
        assert run.ended.state == "finished", run.ended
        assert not any(run.residents)
        assert digest(run.lines[-1]) == alone
        found = sum(isinstance(notice, ResizeDone) for notice in run.notices)
        done += found
        iterations *= 2 if found < 5 else 1


@pytest.mark.more
@pytest.mark.parametrize("kind", ["rigid", "malleable", "blocks", "rectangle"])
def test_a_scaffolded_program_keeps_the_protocol(tmp_path, kind):
    program = new("heat", tmp_path, kind=kind)[0].parent / "program.py"
    argv = {"numpy": (sys.executable, str(program))}
    rows, more = ("blocks", {"points": 2000}) if kind == "blocks" else ("grid", {})
    small, telling = (
        ProblemSize({rows: count, "iterations": iterations, **more}, count, count)
        for count, iterations in ((24, 6), (600, 20))
    )
    checks = check_program(
        argv, small, telling, of_rectangles={"numpy"} if kind == "rectangle" else set()
    )
    assert [check for check in checks if not check.ok] == []

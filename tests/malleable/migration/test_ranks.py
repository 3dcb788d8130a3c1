"""Unmodified MPI programs: ranks are stopped, moved by a real CRIU, connected anew; the same bits come out."""

import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from commands import command

from apples.io import state
from apples.jobs import store
from apples.launch import marked
from apples.malleable import HostShare, ResizeCommand, inspection, ranks, steps

pytestmark = [pytest.mark.more, pytest.mark.criu]
PROGRAMS = Path(__file__).parent / "ranks_mpi"
TRIALS = int(os.environ.get("APPLES_MOVES", "2"))
HOSTS = "abcde"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The folder of the library, compiled once."""
    folder = tmp_path_factory.mktemp("library")
    try:
        ranks.build_library(folder)
    except ranks.NoLibrary as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="session")
def compiled(tmp_path_factory, library):
    """Return what compiles one of the programs, and returns its path."""

    def compile_(name):
        made = tmp_path_factory.mktemp("compiled") / name
        command = ["cc", "-O1", "-Wall", "-Werror", f"-I{ranks.include_folder()}"]
        linked = [f"-L{library}", f"-l:{ranks.LIBRARY}", "-Wl,--allow-shlib-undefined", "-lm"]
        subprocess.run([*command, "-o", made, PROGRAMS / f"{name}.c", *linked], check=True)
        return [str(made)]

    return compile_


@pytest.fixture
def parallel(tmp_path, library, stage_of):
    """Return what makes a stage for an MPI program with some ranks."""

    def make(program, count=3, folder="on", **task):
        place = tmp_path / folder
        (place / "job" / ranks.RANKS_FOLDER).mkdir(mode=0o700, parents=True)
        shutil.copy(library / ranks.LIBRARY, place / "job" / ranks.RANKS_FOLDER)
        return stage_of(place, program, ranks=count, hosts=HOSTS, **task)

    return make


def programs(compiled):
    return {
        "C": [*compiled("exchange"), "enough"],
        "mpi4py": [sys.executable, str(PROGRAMS / "exchange.py"), "enough"],
    }


def exchanged(on, *acts):
    """Run a program that exchanges until there is a file, and return the checked numbers it ended with."""
    code, script = on.run(*acts)
    text = (on.folder / "job/output").read_text().split()
    assert (code, script.ended.reason) == (0, ""), (on.folder / "job/errors").read_text()
    return script, text


def unmoved(parallel, program, rounds):
    """Return what the same program says that is not moved and does so many rounds."""
    on = parallel([*program[:-1], rounds], folder="unmoved")
    _, text = exchanged(on)
    return text


class Moves:
    """Moves of ranks drawn at random, one after the other, each as soon as the one before is over."""

    def __init__(self, on, seed, count):
        self.on, self.dice, self.left = on, random.Random(seed), count
        self.hosts = list(on.first)

    def acts(self):
        for epoch in range(1, self.left + 1):
            self.hosts[self.dice.randrange(len(self.hosts))] = self.dice.choice(
                [host for host in HOSTS if host not in self.hosts]
            )
            yield (self.after(epoch - 1), ResizeCommand(epoch, tuple(map(HostShare, self.hosts))))
        yield (self.after(self.left), (self.on.folder / "enough").touch)

    def after(self, count):
        pause = self.dice.uniform(0, 0.3)
        begun = []

        def over():
            if self.on.written("running")() and len(self.on.script.done) == count:
                begun.append(time.monotonic())
            return bool(begun) and time.monotonic() - begun[0] >= pause

        return over


@pytest.mark.usefixtures("criu")
@pytest.mark.parametrize("seed", range(TRIALS))
@pytest.mark.parametrize("language", ["C", "mpi4py"])
def test_ranks_that_move_again_and_again_compute_the_same_bits(parallel, compiled, language, seed):
    program = programs(compiled)[language]
    on = parallel(program)
    moves = Moves(on, seed, 5)
    script, text = exchanged(on, *moves.acts())
    assert (len(script.done), script.refused) == (5, [])
    assert [row.host for row in script.done[-1].members] == moves.hosts
    for done in script.done:
        assert set(done.phases) == {
            *("ready", "stop", "inspect", "signal", "checkpoint", "restart", "connect")
        }
    _, rounds, *numbers = text
    assert int(rounds) > 0
    assert unmoved(parallel, program, rounds)[2:] == numbers


def to(*hosts, epoch=1):
    return ResizeCommand(epoch, tuple(map(HostShare, hosts)))


def refused_and_finished(on):
    """Ask for a move of rank 0 that is refused; return code and reason once the program has ended well."""
    script, _ = exchanged(
        on,
        (on.written("running"), to("d", "b", "c")),
        (lambda: on.script.refused, (on.folder / "enough").touch),
    )
    assert not script.done
    return script.codes[0], script.refused[0]


@pytest.mark.usefixtures("criu")
def test_a_rank_with_a_socket_of_its_own_is_refused_before_any_is_stopped(parallel, compiled):
    on = parallel([*programs(compiled)["mpi4py"], "socket"])
    code, reason = refused_and_finished(on)
    assert code == "program-not-movable"
    assert reason.startswith("a: ")
    assert "TCP" in reason
    assert not list((on.folder / "job/mpi").glob("stopped.*"))


@pytest.mark.usefixtures("criu")
def test_a_rank_that_makes_no_mpi_call_is_named_and_none_is_stopped(parallel):
    program = [sys.executable, str(PROGRAMS / "exchange.py"), "enough", "silent"]
    on = parallel(program, ready_seconds=0.5)
    code, reason = refused_and_finished(on)
    assert code == "rank-not-ready"
    assert "rank 2 " in reason
    assert not list((on.folder / "job/mpi").glob("stopped.*"))


@pytest.mark.usefixtures("criu")
def test_where_the_restart_fails_the_ranks_go_on_where_they_were(parallel, compiled):
    on = parallel(programs(compiled)["C"])
    missing = str(on.folder / "no-such-group/cgroup.procs")
    on.places["d"] = replace(on.places["d"], cgroup=missing)
    assert refused_and_finished(on)[0] == "restart-failed"
    assert (on.folder / "job/mpi/connected.1.0").exists()


@pytest.mark.usefixtures("criu")
@pytest.mark.parametrize(
    ("name", "culprit"),
    [("ready.1.0", "rank 0 "), ("order", os.strerror(errno.EISDIR))],
)
def test_what_cannot_be_written_for_a_move_costs_the_move_and_not_the_job(
    parallel, compiled, name, culprit
):
    on = parallel(programs(compiled)["C"], ready_seconds=0.5)
    (on.folder / "job/mpi" / f"{name}.new").mkdir()
    code, reason = refused_and_finished(on)
    assert code == "rank-not-ready"
    assert culprit in reason
    assert not list((on.folder / "job/mpi").glob("stopped.*"))


def test_a_folder_that_takes_no_file_is_said_and_nothing_is_started(parallel, compiled):
    on = parallel(programs(compiled)["C"])
    (on.folder / "job/mpi/key.new").mkdir()
    code, script = on.run()
    assert (code, script.ended.state, script.ended.code) == (1, "failed", "system-error")
    assert f"job/mpi/key.new: {os.strerror(errno.EISDIR)}" in script.ended.reason


@pytest.mark.usefixtures("criu")
def test_a_rank_that_cannot_say_that_it_stopped_costs_the_move_and_not_the_job(parallel, compiled):
    on = parallel(programs(compiled)["C"], stopped_seconds=0.5)
    blocked = on.folder / "job/mpi/stopped.1.1.new"
    blocked.mkdir()
    script, _ = exchanged(
        on,
        (on.written("running"), to("d", "b", "c")),
        (lambda: on.script.refused, blocked.rmdir),
        ((on.folder / "job/mpi/connected.1.1").exists, (on.folder / "enough").touch),
    )
    assert script.codes == ["rank-not-stopped"]
    assert "rank 1 " in script.refused[0]


def test_an_order_to_stop_that_cannot_be_written_is_taken_back():
    moving = steps.migration(
        steps.MigrationRequest("a", "d", "/job/checkpoint", "/job/shared", {}, rank=0)
    )
    seen = {"report": "seen", "pids": [7], "files": [], "kernel": ""}
    ready = {"report": "ready", "seconds": 0.1, "sockets": {0: [4], 1: [4]}}
    full = {"report": "failed", "reasons": ["order.new: No space left on device"]}
    next(moving)
    for answer in (seen, {"report": "fit"}, ready, seen):
        asked = moving.send(answer)
    assert asked.word == "stop"
    assert moving.send(full) == steps.RanksRequest("withdraw")
    with pytest.raises(StopIteration) as over:
        moving.send({"report": "withdraw"})
    assert over.value.value == steps.MigrationRefused(
        f"a: {full['reasons'][0]}", code="rank-not-stopped"
    )


def test_a_rank_that_does_not_stop_in_time_costs_the_move_and_not_the_job():
    moving = steps.migration(
        steps.MigrationRequest("a", "d", "/job/checkpoint", "/job/shared", {}, rank=0)
    )
    seen = {"report": "seen", "pids": [7], "files": [], "kernel": ""}
    ready = {"report": "ready", "seconds": 0.1, "sockets": {0: [4], 1: [4]}}
    late = {"report": "late", "reasons": ["rank 1 did not stop in 60 s"]}
    assert next(moving).host == "a"
    assert moving.send(seen).host == "d"
    assert moving.send({"report": "fit"}).word == "ready"
    assert moving.send(ready).command == {"order": "inspect", "closing": [4]}
    assert moving.send(seen).word == "stop"
    assert moving.send(late) == steps.RanksRequest("release")
    with pytest.raises(StopIteration) as over:
        moving.send({"report": "release"})
    assert over.value.value == steps.MigrationRefused(
        f"a: {late['reasons'][0]}", code="rank-not-stopped"
    )


@pytest.mark.usefixtures("criu")
def test_a_program_may_end_as_soon_as_a_rank_has_arrived(parallel):
    source = (
        "import os; from mpi4py.MPI import COMM_WORLD as world; parent = os.getppid()\n"
        "if world.rank == 0: print('running', flush=True)\n"
        "while world.bcast(os.getppid() == parent): pass\n"
    )
    on = parallel([sys.executable, "-c", source])
    script, _ = exchanged(on, (on.written("running"), to("d", "b", "c")))
    assert script.ended.state == "finished"
    (result,) = [json.loads(line) for line in on.said if '"result"' in line]
    assert [one["host"] for one in result["hosts"]] == ["d", "b", "c"]


def test_strangers_who_call_a_rank_are_let_go_and_the_others_found(parallel, tmp_path):
    source = (
        "import os, sys, time; from pathlib import Path\n"
        "until = time.monotonic() + 60\n"
        "while os.environ['APPLES_MPI_RANK'] != '0' and not Path(sys.argv[1]).exists():\n"
        "    assert time.monotonic() < until\n"
        "    time.sleep(0.01)\n"
        "from mpi4py.MPI import COMM_WORLD as world; world.barrier()\n"
    )
    called = tmp_path / "called"
    on = parallel([sys.executable, "-c", source, str(called)])
    said = on.folder / "job/mpi/port.0.0"
    strangers = []

    def call():
        """Once rank 0 listens, and before another rank knows of it."""
        if said.exists() and not strangers:
            for number in range(8):
                strangers.append(socket.create_connection(("127.0.0.1", int(said.read_text()))))
                if number % 2:
                    strangers[-1].sendall(b"x" * 40)
            called.touch()

    code, script = on.run(each=call)
    for stranger in strangers:
        stranger.close()
    assert (code, script.ended.state, len(strangers)) == (0, "finished", 8)


@pytest.mark.usefixtures("library")
def test_whoever_cannot_be_reached_is_not_waited_for_longer_than_was_said(tmp_path):
    made = tmp_path / "reaching"
    command = ["cc", f"-I{ranks.include_folder()}", f'-DSOURCE="{ranks.SOURCE}"', "-o", made]
    subprocess.run([*command, PROGRAMS / "reaching.c"], check=True)

    def said(port, seconds):
        words = [made, str(port), str(seconds)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as calling:
        port = listener.getsockname()[1]
        assert said(port, 30) == "reached"
        for _ in range(4):  # nobody accepts: who calls now gets no answer for two minutes
            caller = calling.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        assert said(port, 0.3) == "Connection timed out"
    assert said(port, 30) == "Connection refused"


def test_more_or_fewer_hosts_or_two_at_once_are_refused(parallel, compiled):
    on = parallel(programs(compiled)["C"])
    script, _ = exchanged(
        on,
        (on.written("running"), to("a", "b")),
        (on.written("running"), to("d", "e", "c", epoch=2)),
        (lambda: len(on.script.refused) == 2, (on.folder / "enough").touch),
    )
    assert script.codes == ["run-not-resizable", "too-many-moves"]
    assert script.refused[1].startswith("a, b: ")


def test_a_rank_that_is_killed_ends_the_job_by_name_with_no_process_left(parallel, compiled):
    on = parallel(programs(compiled)["C"])
    pids = []

    def kill():
        for host in "abc":
            pids.extend(inspection.tree(on.anchor.supervisors.process_of(host)))
        os.kill(pids[-1], signal.SIGKILL)

    code, script = on.run((on.written("running"), kill))
    assert (code, script.ended.state) == (1, "failed")
    assert script.ended.code == "program-failed"
    assert script.ended.reason.startswith("rank 2 on c ")
    assert "SIGKILL" in script.ended.reason
    assert [pid for pid in pids if inspection.state(pid) not in {"", "Z"}] == []


@pytest.mark.usefixtures("criu")
@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_kill_in_a_move_leaves_the_same_bits_or_a_failure(parallel, compiled, seed):
    program = programs(compiled)["C"]
    on = parallel(program)
    dice = random.Random(seed)
    begun, seen = [], set()

    def below():
        found = set(inspection.tree(os.getpid())[1:]) - before
        seen.update(found)
        return sorted(pid for pid in found if inspection.state(pid) not in {"", "Z"})

    def due():
        if on.script.done or on.script.refused:
            return True
        if on.anchor.command is not None and not begun:
            begun.append(time.monotonic() + dice.uniform(0, 0.5))
        return False

    def killing():
        """Called in the manager's loop: a move is a sequence of its turns."""
        below()
        if begun and time.monotonic() >= begun[0]:
            with suppress(OSError, IndexError):
                os.kill(dice.choice(below()), signal.SIGKILL)
            begun[0] = float("inf")

    before = set(inspection.tree(os.getpid())[1:])
    acts = [(on.written("running"), to("d", "b", "c")), (due, (on.folder / "enough").touch)]
    code, script = on.run(*acts, each=lambda: (due(), killing()))
    text = (on.folder / "job/output").read_text().split()
    if script.ended.state == "finished":
        assert unmoved(parallel, program, text[1])[2:] == text[2:]
    else:
        assert (code, script.ended.state) == (1, "failed")
        assert script.ended.reason
    until = time.monotonic() + 60
    while [pid for pid in seen if inspection.state(pid) not in {"", "Z"}]:
        assert time.monotonic() < until


def test_the_calls_say_what_those_of_mpich_say(parallel, tmp_path):
    launcher = Path(sys.executable).with_name("mpiexec")
    if not launcher.exists():
        pytest.skip("no mpiexec beside this interpreter")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    program = [sys.executable, str(PROGRAMS / "calls.py")]
    on = parallel([*program, str(ours)])
    _, script = on.run()
    assert script.ended.state == "finished", (on.folder / "job/errors").read_text()
    subprocess.run([launcher, "-n", "3", *program, theirs], check=True)
    for rank in "012":
        numbers = (ours / rank).read_text().split()
        assert len(numbers) > 400
        assert numbers == (theirs / rank).read_text().split()


def test_a_script_that_calls_anything_else_ends_with_the_name_of_the_call(parallel):
    on = parallel([sys.executable, "-c", "from mpi4py.MPI import *; COMM_WORLD.Split(0)"])
    code, script = on.run()
    assert (code, script.ended.state) == (1, "failed")
    said = (on.folder / "job/errors").read_text()
    assert "MPI_Comm_split" in said


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    private = state.directory() / "criu"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if "APPLES_CRIU" not in os.environ and private.exists():
        monkeypatch.setenv("APPLES_CRIU", str(private))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hosts.toml"
    cpus = sorted(os.sched_getaffinity(0))
    named = zip(("ada", "bob", "cyd"), (cpus[0], cpus[-1], cpus[0]), strict=True)
    path.write_text("".join(f'[[host]]\nname = "{n}"\ncpus = [{cpu}]\n' for n, cpu in named))
    yield ["run-program", "--hosts", str(path)]
    for job in store.jobs():
        command("apples", "cancel", job.id)


def refused(verb, *words):
    """Run a command that fails; ``--json`` stands before the program. Return its error."""
    done = command("apples", verb, "--json", *words)
    assert done.out == ""
    return done.failure


def test_a_compiled_program_that_calls_anything_else_is_not_started(hosts, compiled):
    (window,) = compiled("window")
    failure = refused(*hosts, "--on", "ada,bob", "--", window)
    assert (failure["exit_code"], failure["code"]) == (2, "mpi-call-unsupported")
    assert failure["fields"] == {"file": window, "calls": ["MPI_Win_create", "MPI_Win_free"]}
    assert list(store.jobs()) == []


@pytest.mark.usefixtures("criu")
def test_the_verbs_move_a_rank_and_its_end_is_recorded(hosts, compiled, tmp_path):
    program = [*programs(compiled)["C"][:-1], str(tmp_path / "enough")]
    started = command("apples", *hosts, "--on", "ada,bob", "--detach", "--json", "--", *program)
    assert started.code == 0, started.err
    name = started.document["id"]
    assert started.document["hosts"] == ["ada", "bob"]
    output = store.job(name).commits / "output"
    until = time.monotonic() + 120
    while not (output.exists() and "running" in output.read_text()):
        assert time.monotonic() < until
    moved = command("apples", "resize", name, "--from", "ada", "--to", "cyd", "--json")
    assert moved.code == 0, moved.err
    assert moved.document["hosts"] == ["cyd", "bob"]
    again = refused("resize", name, "--from", "cyd", "--to", "bob")
    assert (again["code"], again["fields"]["host"]) == ("host-in-use", "bob")
    (tmp_path / "enough").touch()
    waited = command("apples", "wait", name, "--timeout", "300", "--json")
    assert (waited.code, waited.document["execution"]["hosts"]) == (
        0,
        [{"host": "cyd"}, {"host": "bob"}],
    )
    assert marked(name) == []
    _, rounds, *numbers = output.read_text().split()
    plain = command(
        "apples",
        *hosts,
        "--on",
        "ada,bob",
        "--output",
        str(tmp_path / "plain"),
        "--",
        program[0],
        rounds,
    )
    assert plain.code == 0, plain.err
    assert (tmp_path / "plain/output").read_text().split()[2:] == numbers


@pytest.mark.parametrize(
    ("on", "code", "fields"),
    [
        ("ada,zoe", "host-unknown", {"host": "zoe", "known": ["ada", "bob", "cyd"]}),
        ("ada,ada", "host-repeated", {"host": "ada"}),
        ("ada,,bob", "value-invalid", {"value": "ada,,bob"}),
    ],
)
def test_hosts_that_cannot_be_are_said_before_anything_starts(hosts, on, code, fields):
    failure = refused(*hosts, "--on", on, "--", "true")
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"] == {"option": "--on", **fields}
    assert list(store.jobs()) == []


def test_without_a_compiler_no_library_is_built(monkeypatch, tmp_path):
    if not (Path(sys.prefix) / "include/mpi_proto.h").exists():
        pytest.skip("no header of MPICH beside this interpreter")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ranks.NoLibrary) as refused:
        ranks.build_library(tmp_path, Path(sys.prefix) / "include")
    assert refused.value.code == "library-not-built"

"""The execution plug-in and its command: bound before it begins, gone when it has ended."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command
from daemons import QUICK, Daemon, needs_cpusets, quick_folder
from waiting import until

from apples.topology import Affinity, CpuSet, find_backend, started, starter, synthetic

ROOT = Path(__file__).parents[2]
EXEC = [sys.executable, "-m", "apples", "exec", "--socket"]
MINE = CpuSet.of(os.sched_getaffinity(0))
WHOLE = f"core:{max(MINE) + 1} pu:1"


def fenced(kind):
    if kind == "affinity":
        return Affinity()
    needs_cpusets()
    return find_backend(kind)[0]


@pytest.fixture(
    params=["affinity", pytest.param("cpuset-v1", marks=pytest.mark.cgroup)],
)
def daemon(request):
    with Daemon(synthetic(WHOLE), fenced(request.param), QUICK) as running:
        yield running
        for job in running.jobs:
            running.ask("deallocate", job=job)


def apples_exec(daemon, *words):
    return command("apples", "exec", "--socket", daemon.socket, *words)


def test_a_command_runs_on_its_cpus_and_its_exit_code_is_the_commands(daemon, tmp_path):
    said = tmp_path / "said"
    program = (
        f"taskset -cp $$ >{said}; echo $OMP_NUM_THREADS $APPLES_TOPOLOGY_CPUS >>{said}; exit 7"
    )
    done = apples_exec(daemon, "--job", "mine", "--", "sh", "-c", program)
    assert done.code == 7
    mask, words = said.read_text().splitlines()
    cpus = mask.rpartition(":")[2].strip()
    assert words == f"1 {cpus}"
    assert "mine" in done.err
    assert cpus in done.err
    assert not daemon.jobs
    assert CpuSet.parse(daemon.ask("status")["free"]) == MINE


def test_what_a_command_leaves_behind_is_ended_with_it(daemon, tmp_path):
    left = tmp_path / "left"
    program = f"(setsid sh -c 'trap \"\" TERM; echo $$ >{left}; while :; do sleep 100; done' &)"
    program += f"; while [ ! -s {left} ]; do sleep 0.01; done"
    assert apples_exec(daemon, "--", "sh", "-c", program).code == 0
    until(lambda: started(int(left.read_text())) == "")
    assert not daemon.jobs


def test_a_command_that_is_not_there_or_cannot_be_bound_never_ran(daemon):
    done = apples_exec(daemon, "--", "/no/such/program")
    assert done.code == starter.CANNOT_START
    assert not daemon.jobs
    asked = [
        sys.executable,
        "-I",
        "-S",
        starter.__file__,
        str(daemon.socket),
        "nobody",
        "touch",
        "x",
    ]
    refused = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert refused.returncode == starter.CANNOT_BIND
    assert "nobody" in refused.stderr


def test_refusals_have_the_exit_codes_of_never_and_not_now(daemon):
    many = str(len(MINE) + 1000)
    assert apples_exec(daemon, "-n", many, "--", "true").code == 3
    whole = str(len(MINE))
    with daemon.client() as asking:
        asking.ask("allocate", job="all", count=len(MINE), until="told")
        assert apples_exec(daemon, "-n", whole, "--", "true").code == 4
    assert apples_exec(daemon, "--require", "CPU_LIST=9-1", "--", "true").code == 2
    assert apples_exec(daemon, "--share", "--", "true").code == 2
    dry = apples_exec(daemon, "--dry-run", "-n", whole, "--", "true")
    assert (dry.code, dry.out) == (4, "")


def test_a_dry_run_says_where_and_runs_nothing(daemon, tmp_path):
    done = apples_exec(daemon, "--dry-run", "--", "touch", tmp_path / "ran")
    assert done.code == 0
    assert done.out.startswith("CPUs ")
    assert "taskset --cpu-list" in done.out
    assert not (tmp_path / "ran").exists()
    assert not daemon.jobs


def test_a_command_ends_with_the_apples_exec_that_started_it_however_that_ends(daemon, tmp_path):
    ending = signal.SIGTERM if daemon.isolation.title == "affinity" else signal.SIGKILL
    begun = tmp_path / "begun"
    words = [*EXEC, str(daemon.socket), "--"]
    process = subprocess.Popen(
        [*words, "sh", "-c", f"echo $$ >{begun}; sleep 1000"], stderr=subprocess.DEVNULL
    )
    until(lambda: begun.exists() and begun.read_text().strip())
    process.send_signal(ending)
    process.wait(120)
    until(lambda: not daemon.jobs)
    until(lambda: started(int(begun.read_text())) == "")
    assert CpuSet.parse(daemon.ask("status")["free"]) == MINE


def test_a_command_keeps_its_exit_code_if_its_daemon_is_started_again_meanwhile(tmp_path):
    script = 'touch "$0/started"; until [ -e "$0/go" ]; do sleep 0.05; done; exit 7'
    with Daemon(synthetic(WHOLE), Affinity(), QUICK) as first:
        shell = ["sh", "-c", script, str(tmp_path)]
        words = [*EXEC, str(first.socket), "--job", "long", "--", *shell]
        running = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        until((tmp_path / "started").exists)
        first.stop()
        with Daemon(synthetic(WHOLE), Affinity(), QUICK, home=first.home) as second:
            (tmp_path / "go").touch()
            assert running.wait(60) == 7
            assert not second.jobs


@pytest.mark.cgroup
def test_a_daemon_that_is_killed_and_started_again_finds_its_jobs_running():
    needs_cpusets()
    home = quick_folder()
    for name in ("s", "r"):
        (home / name).mkdir(mode=0o700)
    words = [sys.executable, "-m", "apples", "topologyd", "--directory", str(home / "s")]
    words += ["--run", str(home / "r"), "--ignore", "*", "--topology", WHOLE]
    asking = Daemon(home=home)
    asking.socket = home / "r/topologyd.sock"

    def start():
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert "topologyd.sock" in process.stderr.readline()
        return process

    try:
        first = start()
        job = subprocess.Popen(
            [*EXEC, str(asking.socket), "--job", "long", "--", "/bin/sleep", "1000"],
            stderr=subprocess.DEVNULL,
        )
        until(lambda: "long" in asking.jobs)
        isolation, _ = find_backend("cpuset-v1")
        container = asking.jobs["long"]["pen"]
        until(lambda: isolation.processes(container))
        before = asking.jobs["long"]
        first.kill()
        first.wait()
        first.stderr.close()
        inside = isolation.processes(container)
        assert inside  # nothing happens to a job while the daemon is away
        second = start()
        assert asking.jobs["long"] == before
        assert isolation.processes(container) == inside
        job.kill()  # its keeper: the new daemon watches it as the old one did
        job.wait()
        until(lambda: not asking.jobs)
        assert not isolation.cpus(container)
        second.terminate()
        assert second.wait(120) == 0
        second.stderr.close()
        assert not asking.socket.exists()
    finally:
        shutil.rmtree(home)


COUNTING = (
    "import os, signal, sys, time\n"
    "for name in ('INT', 'USR1'):\n"
    "    signal.signal(signal.Signals['SIG' + name], lambda number, _, name=name: os.write(1, name.encode()))\n"
    "signal.signal(signal.SIGTERM, lambda *_: os._exit(3))\n"
    "open(sys.argv[1], 'w').close()\n"
    "while True: time.sleep(0.01)"
)


def test_interrupt_of_the_terminal_reaches_a_command_once(tmp_path):
    process, terminal = pty.fork()
    if not process:
        words = ["exec", "--require", "CPUSET_TYPE=none", "--", sys.executable, "-c", COUNTING]
        os.execv(sys.executable, [sys.executable, "-m", "apples", *words, str(tmp_path / "up")])  # noqa: S606
    shown = b""

    def wait_for(word, times=1):
        nonlocal shown
        while shown.count(word) < times:
            shown += os.read(terminal, 4096)

    try:
        until((tmp_path / "up").exists)
        os.kill(process, signal.SIGSTOP)
        os.write(terminal, b"\x03")  # the terminal sends SIGINT to its foreground group: to both
        wait_for(b"INT")
        os.kill(process, signal.SIGUSR1)
        os.kill(process, signal.SIGCONT)  # now apples exec has both; the lower number comes first
        wait_for(b"USR1")
        assert shown.count(b"INT") == 1
        os.kill(process, signal.SIGINT)  # of a process, to apples exec alone: passed on
        wait_for(b"INT", 2)
        os.kill(process, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 3
    finally:
        os.close(terminal)


def test_alone_a_command_is_bound_too_and_nothing_stays(tmp_path):
    said = tmp_path / "said"
    done = command(
        "apples", "exec", "--alone", "--", "sh", "-c", f"taskset -cp $$ >{said}; exit 3"
    )
    assert done.code == 3
    assert len(CpuSet.parse(said.read_text().rpartition(":")[2])) == 1
    assert command("apples", "exec", "--alone", "-n", "5000", "--", "true").code == 3
    dry = command("apples", "exec", "--alone", "--dry-run", "--", "touch", tmp_path / "ran")
    assert dry.out.startswith("CPUs ")
    assert not (tmp_path / "ran").exists()


def test_a_command_that_wants_no_set_runs_where_it_likes_and_asks_nobody(tmp_path):
    said = tmp_path / "said"
    words = ["exec", "--require", "CPUSET_TYPE=none"]
    done = command("apples", *words, "--", "sh", "-c", f"taskset -cp $$ >{said}; exit 5")
    assert done.code == 5
    assert CpuSet.parse(said.read_text().rpartition(":")[2]) == MINE


@pytest.mark.parametrize("option", ["--socket", "--job", "--least", "--alone"])
def test_command_that_wants_no_set_takes_no_option_of_a_set(option):
    value = [] if option == "--alone" else ["1"]
    words = ["exec", "--require", "CPUSET_TYPE=none", option, *value]
    done = command("apples", *words, "--", "true")
    assert (done.code, done.error_codes) == (2, ["option-not-applicable"])
    assert option in done.err


def test_no_daemon_is_one_clear_line(tmp_path):
    done = command("apples", "exec", "--socket", tmp_path / "no.sock", "--", "true")
    assert (done.code, done.error_codes) == (4, ["daemon-unreachable"])
    assert str(tmp_path / "no.sock") in done.err
    assert len(done.err.splitlines()) == 1


def test_memory_that_is_preferred_is_said_to_the_kernel():
    script = (
        f"import runpy; s = runpy.run_path({starter.__file__!r}, run_name='x')\n"
        "print(s['prefer_memory']('0'), s['prefer_memory'](''))\n"
        "print([l for l in open('/proc/self/numa_maps')][0].split()[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    agreed, policy = done.stdout.splitlines() if done.stdout.count("\n") > 1 else (done.stdout, "")
    assert agreed.split()[1] == "False"
    if agreed.split()[0] == "True":
        assert policy.startswith("prefer")


def test_the_operator_sees_the_ladder_and_the_jobs(daemon):
    ladder = command("apples", "topologyd", "--probe", "--json").document
    assert [each["fence"] for each in ladder["fences"]][-2:] == ["affinity", "dry-run"]
    daemon.ask("allocate", job="seen", count=1, until="told")
    run = daemon.socket.parent
    shown = command("apples", "topologyd", "--run", run, "--status")
    assert "seen" in shown.out
    found = command("apples", "topologyd", "--run", run, "--status", "--json").document
    assert found["schema"] == "apples.topologyd/1"
    assert [job["job"] for job in found["jobs"]] == ["seen"]
    assert command("apples", "topologyd", "--run", run, "--release", "seen").code == 0
    assert not daemon.jobs


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "word"),
    [
        (["--sharing-factor", "2"], 2, "value-range", "2.0"),
        (["--reserve", "3-1"], 2, "cpu-list-invalid", "3-1"),
        (["--fence", "magic"], 4, "isolation-unknown", "magic"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(tmp_path, words, exit_code, code, word):
    done = command("apples", "topologyd", "--directory", tmp_path / "s", *words)
    assert (done.code, done.error_codes) == (exit_code, [code])
    assert word in done.err


def test_the_unit_that_is_shipped_is_little_exposed():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = ROOT / "packaging/apples-topologyd.service"
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25"]
    done = subprocess.run(
        [*words, str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout
    exposure = float(done.stdout.rpartition("service: ")[2].split()[0])
    assert exposure <= 2.5

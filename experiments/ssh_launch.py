"""Measure runs over ssh in a lab of four hosts: launch, a dead host, and cleanup after kills.

    python experiments/ssh_launch.py [--repeats 5] [--json FILE]

Needs root. Bars: launch 3 s, dead host 6 s, 5 s from a kill of agent, mpiexec or rank to the last process. Exit
code 1: a bar is missed.

Result (2026-11-20, 2 CPUs, load 7 to 12): launch 1.7 to 2.0 s, dead host 4.3 s.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jacobi2d"
FILES = ("--template", EXAMPLE / "template.toml", "--user", EXAMPLE / "user.toml")
LAUNCH, DEAD, GONE = 3.0, 6.0, 5.0
MARK = b"APPLES_JOB="
LAB = 'name = "launch"\nssh = true\n' + "".join(f'[[host]]\nname = "n{i}"\n' for i in range(4))
DEAD_HOST = '\n[[host]]\nname = "dead"\naddress = "{}"\n'
FAST = "\n[default_link]\nlatency = 1e-9\nbandwidth = 1e12\n"


def apples(*words, **options):
    argv = [sys.executable, "-m", "apples", *map(str, words)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def answer(*words):
    process = apples(*words, "--json")
    out, talk = process.communicate(timeout=120)
    if process.returncode not in (0, 4):
        sys.exit(f"apples {words[0]}: {talk.decode()}")
    return json.loads(out)


def run_words(hosts, grid, iterations, weather="static"):
    sizes = ("--set", f"grid={grid}", "--set", f"iterations={iterations}")
    return ("run", "--hosts", hosts, *FILES, *sizes, "--actuator", "ssh", "--weather", weather)


def launches(hosts, repeats):
    runs = [answer(*run_words(hosts, 2000, 20), "--no-verify") for _ in range(repeats)]
    used = {len(run["plan"]["chosen"]["hosts"]) for run in runs}
    return used, [run["execution"]["startup_seconds"] for run in runs]


def looking(hosts):
    begin = time.perf_counter()
    document = answer("doctor", "--hosts", hosts)
    seconds = time.perf_counter() - begin
    return seconds, [host["host"] for host in document["hosts"] if not host["fit"]]


def marked(job):
    """Return the processes of a run by name, of every host: those of a lab are all visible from here."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and job in (process / "environ").read_bytes().split(b"\0"):
                words = (process / "cmdline").read_bytes()
                kind = "mpiexec" if b"/mpiexec\0" in words[:200] else "other"
                kind = "rank" if b"solver.py" in words else kind
                found.setdefault(kind, []).append(int(process.name))
        except OSError:
            continue
    return found


def job_of(agent):
    """Return the mark of the run an agent started; its supervisor bears it."""
    for process in Path("/proc").iterdir():
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if process.name.isdigit() and int(parent) == agent:
                for entry in (process / "environ").read_bytes().split(b"\0"):
                    if entry.startswith(MARK):
                        return entry
        except (OSError, IndexError):
            continue
    return b""


def until(condition, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.01)
    return found


def busy(pid):
    """Return whether a process has computed for a while: it is past its start."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]) > 100


def kill(hosts, victim, count):
    """Seconds from the kill to the last process gone, and the agent's own end."""
    agent = apples(*run_words(hosts, 2000, 10_000_000), "--no-verify")
    job = until(lambda: job_of(agent.pid), "the supervisor")
    until(lambda: len(marked(job).get("rank", ())) == count, f"{count} ranks")
    until(lambda: all(busy(pid) for pid in marked(job).get("rank", ())), "their iterations")
    target = agent.pid if victim == "agent" else marked(job)[victim][0]
    begin = time.perf_counter()
    os.kill(target, signal.SIGKILL)
    until(lambda: not marked(job), f"the end of all after the {victim}'s")
    seconds = time.perf_counter() - begin
    agent.communicate(timeout=30)
    return seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        (Path(folder) / "lab.toml").write_text(LAB)
        try:
            hosts = Path(answer("lab", "up", Path(folder) / "lab.toml")["hosts"])
            told = (
                hosts.read_text()
                if "default_link" in hosts.read_text()
                else hosts.read_text() + FAST
            )
            hosts.write_text(told)
            used, seconds = launches(hosts, options.repeats)
            alone, _ = looking(hosts)
            dead = hosts.with_name("dead.toml")
            network = told.partition('address = "')[2].partition('"')[0].rpartition(".")[0]
            dead.write_text(told + DEAD_HOST.format(f"{network}.200"))
            with_dead, named = looking(dead)
            gone = {who: kill(hosts, who, max(used)) for who in ("agent", "mpiexec", "rank")}
        finally:
            apples("lab", "down", "launch").communicate(timeout=60)
    rows = [
        (f"launch over {max(used)} hosts", statistics.median(seconds), LAUNCH),
        (f"dead host (names {', '.join(named)}), looking alone {alone:.2f} s", with_dead, DEAD),
        *((f"kill -9 of {who} to nothing left", took, GONE) for who, took in gone.items()),
    ]
    for what, took, bar in rows:
        print(f"{took:6.2f} s  (bar {bar:.0f} s)  {what}")
    print("launches:", ", ".join(f"{one:.2f}" for one in sorted(seconds)), "s")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "launches": seconds}, indent=1))
    return int(any(took > bar for _, took, bar in rows) or named != ["dead"])


if __name__ == "__main__":
    sys.exit(main())

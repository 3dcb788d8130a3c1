"""Trials of the database and the service of the NWS: kills, power cuts, full disks, faults.

    python tests/soak_nws.py all --n N
    python tests/soak_nws.py kills=4 power=3 archive=4 damage turns full syscalls fuzz kills=3+early
    python tests/soak_nws.py --engine auto kills=10000 power=10000

PART=TRIALS+PLANT, each in a process of its own; a plant is a bug that must be found. Each prints
one JSON line {"part", "plant", "seed", "trials", "failures", ..}, or {.., "skipped": REASON} if this
machine cannot do it; how far it is stands on standard error once a minute. The exit code is 1 if any
fails. `make soak` runs all; the tests run a few.

What is killed is forked from a process that has imported, and compiled, everything: a trial takes
tenths of a second in place of seconds, so that 10,000 take an hour.
"""

import argparse
import ctypes
import errno
import fcntl
import http.client
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from turn_worlds import TurnWorld

from nws import (
    ForecastDatabase,
    Listen,
    Measurement,
    Retention,
    SeriesName,
    Serving,
    SqliteMemory,
    StorageError,
    warm,
)

EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
SERIES = 11
CAPACITY = 100
"""Measurements kept of a series: in forty trials most of them become slots."""
RECOVERY_SECONDS = 10
"""Of a service with room again, however busy the machine; what it took is told."""
START = 1_700_000_000.0
ENGINE = "numpy"


class CannotError(Exception):
    """This machine cannot do it."""


class Telling:
    """Says on standard error once a minute how far a long part is."""

    def __init__(self, part, count):
        self.part, self.count = part, count
        self.begun = self.said = time.monotonic()

    def __call__(self, trial, failures, acknowledged):
        now = time.monotonic()
        if now - self.said > 60:
            self.said = now
            rest = (now - self.begun) / (trial + 1) * (self.count - trial - 1)
            print(
                f"{self.part}: {trial + 1} of {self.count}, {acknowledged} acknowledged, "
                f"{len(failures)} failed; {rest / 60:.0f} min to go",
                file=sys.stderr,
                flush=True,
            )


def row(number):
    """Return the measurement that is the number-th to be sent."""
    return (f"availableCpu/h{number % SERIES}", START + number, (number * 7919 % 1009) / 1009)


def opened(directory):
    """Open the database that is put through it; numba, which gives the same bits, is for long runs."""
    return ForecastDatabase(directory, Retention(capacity=CAPACITY), engine=ENGINE)


def forecasts_of(database):
    """Return all forecasts, one step ahead and over a frame."""
    return {
        (c.text, over): database.forecast(c.text, over=over)[0]
        for c in database.summaries()
        for over in (None, 600.0)
    }


def write_until_dead(directory, pipe):
    """Store ever more, several batches on the way; say on the pipe what was acknowledged."""
    database = opened(directory)
    number = 1 + max((round(c.newest - START) for c in database.summaries()), default=-1)
    waiting = []
    while True:
        batch = list(range(number, number + random.randint(1, 60)))
        number = batch[-1] + 1
        waiting.append((batch, database.submit([row(each) for each in batch])))
        while len(waiting) > 4 or (waiting and random.random() < 0.3):
            sent, stored = waiting.pop(0)
            stored.result(timeout=10)
            os.write(pipe, f"{sent[0]} {sent[-1]}\n".encode())
        if random.random() < 0.05:
            database.save(after=1)
            database.tidy()


def child(work, directory):
    """Fork who writes; return its id and the end of the pipe that it reports to."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        random.seed()
        try:
            work(directory, writing)
        finally:  # the disk went away under it, as was meant
            os._exit(3)
    os.close(writing)
    return process, reading


def so_far(reading):
    """Return what is in the pipe now."""
    os.set_blocking(reading, False)
    try:
        return os.read(reading, 1 << 20)
    except BlockingIOError:
        return b""
    finally:
        os.set_blocking(reading, True)


def acknowledged_until_end(reading, first=b""):
    data = first
    while piece := os.read(reading, 1 << 16):
        data += piece
    os.close(reading)
    lines = data.decode().split("\n")[:-1]
    return [tuple(map(int, line.split())) for line in lines]


def lost_of(directory, ranges):
    """Return what was acknowledged and is not there, and whether forecasts repeat to the bit."""
    database = opened(directory)
    there = {c.text: dict(database.memory.samples(c.text)) for c in database.summaries()}
    full = {c.text: c.folded for c in database.summaries()}
    forecasts = forecasts_of(database)
    database.close(save=False)
    lost = [
        number
        for first, last in ranges
        for number in range(first, last + 1)
        for name, at, value in [row(number)]
        if there.get(name, {}).get(at) != value and at >= full.get(name, 0.0)
    ]
    again = opened(directory)
    same = forecasts == forecasts_of(again)
    again.close()
    return lost, same


def serve_until_dead(directory, pipe):
    """Be the service on a port of its own, told on the pipe; save and tidy all the time."""
    database = {"engine": ENGINE, "retention": Retention(capacity=CAPACITY)}
    serving = Serving(directory, Listen(port=0), database=database)
    serving.handler.tidy_seconds = 0.02
    serving.run(lambda: os.write(pipe, f"{serving.url} {serving.token}\n".encode()))


class Senders:
    """Send measurements to a service from several connections until it is gone.

    Attributes
    ----------
    acknowledged
        (first, last) of every batch that was answered with "all stored".
    odd
        Other answers: there should be none.
    begun
        Set at the first such answer, or when the service is gone.
    """

    def __init__(self, url, token, number):
        self.acknowledged, self.odd, self.begun = [], [], threading.Event()
        self._number, self._lock = number, threading.Lock()
        self._address = url.removeprefix("http://")
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._threads = [threading.Thread(target=self._send) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def _send(self):
        connection = http.client.HTTPConnection(self._address, timeout=20)
        try:
            while True:
                with self._lock:
                    first, self._number = self._number, self._number + random.randint(1, 60)
                    last = self._number - 1
                rows = [row(number) for number in range(first, last + 1)]
                samples = [{"series": s, "time": at, "value": value} for s, at, value in rows]
                body = json.dumps({"measurements": samples})
                connection.request("POST", "/v1/measurements", body, self._headers)
                answer = connection.getresponse()
                said = json.loads(answer.read())
                if answer.status == 200 and said["stored"] == len(rows):
                    self.acknowledged.append((first, last))
                else:
                    self.odd.append(said)
                self.begun.set()
        except (OSError, http.client.HTTPException):
            connection.close()  # killed, as was meant
            self.begun.set()

    def join(self):
        for thread in self._threads:
            thread.join()
        return self._number


def kills(count, home):
    """Kill -9 the service at random moments, over and over, on the same directory.

    Three clients store over HTTP meanwhile, and states are saved and old measurements become slots
    all the time. Each trial looks at what any client was told of in the last forty.
    """
    failures, acknowledged, void = [], 0, 0
    with Serving(home / "warm", Listen(port=0)):
        pass  # what it loads late is there now for all that are forked
    telling, directory = Telling("kills", count), home / "kills"
    for trial in range(count):
        if trial % 40 == 0:
            shutil.rmtree(directory, ignore_errors=True)
            kept, number = [], 0
        process, reading = child(serve_until_dead, directory)
        told = os.read(reading, 1 << 16).split()
        senders = Senders(*(word.decode() for word in told), number)
        senders.begun.wait()
        time.sleep(random.uniform(0, 0.06))  # the moment of the kill is what is tried
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reading)
        number = senders.join()
        ranges = senders.acknowledged
        kept += ranges
        acknowledged += sum(last - begin + 1 for begin, last in ranges)
        lost, same = lost_of(directory, kept)
        void += not ranges  # the service acknowledged nothing: this trial says nothing
        if lost or not same or senders.odd:
            failures.append(
                {"trial": trial, "lost": lost[:5], "same": same, "odd": senders.odd[:2]}
            )
        telling(trial, failures, acknowledged)
    return {"failures": failures, "acknowledged": acknowledged, "void": void}


EVERY = 20.0
"""Seconds between two measurements: a slot has fifteen, an hour 180."""


def everything(_):
    """Return that all of a series may become slots."""
    return float("inf")


def archive_until_dead(directory):
    """Store ever more, each moment of the clock later than the last, and move what is old."""
    now = [START]
    memory = SqliteMemory(directory, Retention(capacity=50), clock=lambda: now[0])
    number = 1 + max((round((c.newest - START) / EVERY) for c in memory.summaries()), default=-1)
    while True:
        batch = list(range(number, number + random.randint(1, 200)))
        number = batch[-1] + 1
        now[0] = max(now[0], START + EVERY * number + random.choice([0.0, 3e4, 70 * 86400.0]))
        rows = [(f"availableCpu/h{n % 3}", START + EVERY * n, n % 7 / 7) for n in batch]
        memory.submit(rows).result(timeout=10)
        if random.random() < 0.5:
            memory.tidy(everything)
            memory.age_slots()


def archive(count, home):
    """Kill -9 the process that moves old measurements; each is there once, alone or in a slot."""
    failures, slots = [], 0
    telling, directory = Telling("archive", count), home / "archive"
    for trial in range(count):
        if trial % 40 == 0:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
        process = os.fork()
        if process == 0:
            random.seed()
            try:
                archive_until_dead(directory)
            finally:
                os._exit(3)
        time.sleep(random.uniform(0.02, 0.12))  # the moment of the kill is what is tried
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        memory = SqliteMemory(directory, Retention(capacity=50))
        newest = max((c.newest for c in memory.summaries()), default=START - EVERY)
        number = 1 + round((newest - START) / EVERY)
        for host in range(3):
            name = f"availableCpu/h{host}"
            found = memory.slots(name, 0.0, 1e12)
            slots += len(found)
            kept = len(memory.samples(name)) + sum(slot.count for slot in found)
            if kept != len(range(host, number, 3)):
                failures.append({"trial": trial, "series": name, "kept": kept, "of": number})
        memory.close()
        telling(trial, failures, slots)
    return {"failures": failures, "slots": slots}


def own_mounts():
    """Enter a mount namespace of our own; what is mounted there goes with us."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        raise CannotError("mounting needs root")
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
        raise CannotError(f"no mount namespace: {os.strerror(ctypes.get_errno())}")


def ran(*command):
    if shutil.which(command[0]) is None:
        raise CannotError(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotError(f"{' '.join(command)}: {done.stderr.strip()}")


def own_disk(home):
    """Make a small file system; return its image and where it is to be mounted, which others do not see."""
    own_mounts()
    image, mount = home / "disk", home / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(48 << 20)
    ran("mkfs.ext4", "-q", "-F", str(image))
    return image, mount


def power(count, home):
    """Cut the power of an ext4 file system while the writer runs; mount it again and look.

    What counts is what was acknowledged before the cut: unlike after a real one the writer still
    runs for a moment, and fdatasync of a file system that is being shut down can return 0 for
    bytes that never got there (Linux 6.18; counted apart).
    """
    image, mount = own_disk(home)
    failures, acknowledged, posthumous, void = [], 0, 0, 0
    telling = Telling("power", count)
    for trial in range(count):
        ran("mount", "-o", "loop", str(image), str(mount))
        directory = mount / "nws"
        shutil.rmtree(directory, ignore_errors=True)
        process, reading = child(write_until_dead, directory)
        first = os.read(reading, 1 << 16)
        time.sleep(random.uniform(0, 0.04))  # the moment of the cut is what is tried
        root = os.open(mount, os.O_RDONLY)
        first += so_far(reading)
        fcntl.ioctl(root, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
        os.close(root)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        ranges = acknowledged_until_end(reading, first)
        whole = first[: first.rfind(b"\n") + 1].count(b"\n")
        ranges, late = ranges[:whole], ranges[whole:]
        ran("umount", str(mount))
        ran("mount", "-o", "loop", str(image), str(mount))
        acknowledged += sum(last - begin + 1 for begin, last in ranges)
        lost, same = lost_of(directory, ranges)
        posthumous += bool(lost_of(directory, late)[0])
        void += not ranges  # the writer acknowledged nothing: this trial says nothing
        if lost or not same:
            failures.append({"trial": trial, "lost": lost[:5], "same": same, "acks": len(ranges)})
        ran("umount", str(mount))
        telling(trial, failures, acknowledged)
    found = {"failures": failures, "acknowledged": acknowledged, "void": void}
    return found | {"lost_of_what_was_acknowledged_after_the_cut": posthumous}


def damage(count, home):
    """Change and cut random bytes of a database: it opens, or it is refused as damaged, and nothing else.

    What SQLite does not notice is a changed number: it has no checksum of a row.
    """
    failures, refused, directory = [], 0, home / "damage"
    memory = SqliteMemory(directory, Retention(capacity=CAPACITY))
    memory.submit([row(number) for number in range(3000)]).result(timeout=60)
    memory.tidy(everything)
    memory.close()
    path = directory / "weather.db"
    whole = path.read_bytes()
    for trial in range(count):
        bad = bytearray(whole)
        for _ in range(random.choice([1, 10, 1000])):
            bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
        path.write_bytes(bad[: random.choice([len(bad), random.randrange(len(bad))])])
        for beside in directory.glob("weather.db-*"):
            beside.unlink()
        try:
            memory = SqliteMemory(directory, Retention(capacity=CAPACITY))
            try:
                for each in memory.summaries():
                    memory.samples(each.text)
                    memory.slots(each.text, 0.0, 1e12)
                memory.store(Measurement(SeriesName("availableCpu", "new"), START, 0.5))
            finally:
                memory.close()
        except StorageError:
            refused += 1
        except Exception as error:  # noqa: BLE001 - told, and the next
            failures.append({"trial": trial, "error": repr(error)})
    return {"failures": failures, "refused": refused}


def turns(count, home):
    """Simulate probe turns: late and lost answers, crashes, joins, restarts of the service."""
    del home
    failures, probes = [], 0
    for seed in range(count):
        world = TurnWorld(seed, hosts=3 + seed % 13, sites=1 + seed % 3)
        for _ in range(seed % 4):
            world.after(world.random.uniform(0, 1800), world.restart_service)
        world.run(1800)
        if overlaps := world.overlaps():
            failures.append({"seed": seed, "overlaps": overlaps[:3]})
        probes += len(world.probes)
    return {"failures": failures, "probes": probes}


def full(count, home):
    """Fill the disk under a running service: 507, reads go on, it recovers when there is room."""
    import requests

    own_mounts()
    disk = home / "full"
    disk.mkdir()
    ran("mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(disk))
    failures, number, ballast, slowest = [], 0, disk / "ballast", 0.0
    with Serving(disk / "nws", Listen(port=0)) as serving:
        headers = {"Authorization": f"Bearer {serving.token}"}

        def store():
            nonlocal number
            now = time.time() - 1000 + number / 1000
            number += 1
            series = [f"availableCpu/{name}" for name in ("ada", *range(300))]
            samples = [{"series": name, "time": now, "value": 0.5} for name in series]
            body = {"measurements": samples}
            url = f"{serving.url}/v1/measurements"
            return requests.post(url, json=body, headers=headers, timeout=10).status_code

        def read():
            url = f"{serving.url}/v1/forecast?series=availableCpu/ada"
            answer = requests.get(url, headers=headers, timeout=10)
            return answer.status_code == 200 and answer.json()["forecasts"][0]["value"] == 0.5

        store()
        for trial in range(count):
            fill(ballast)
            statuses = [store() for _ in range(3)]
            reads = read()
            ballast.unlink()
            freed = time.monotonic()
            while store() != 200:
                if time.monotonic() - freed > RECOVERY_SECONDS:
                    break
            seconds = time.monotonic() - freed
            slowest = max(slowest, seconds)
            if statuses[-1] != 507 or not reads or seconds > RECOVERY_SECONDS:
                failures.append({"trial": trial, "statuses": statuses, "recovery": seconds})
        kept = {c.text: c.count for c in serving.database.summaries()}
    database = ForecastDatabase(disk / "nws")
    if {c.text: c.count for c in database.summaries()} != kept or database.problems():
        failures.append({"after": database.problems()})
    database.close(save=False)
    ran("umount", str(disk))
    return {"failures": failures, "slowest_recovery": round(slowest, 3)}


def fill(ballast):
    """Write until there is no room at all."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


STORING = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from nws import Retention, ForecastDatabase
from soak_nws import row
database = ForecastDatabase(Path(sys.argv[1]), Retention(capacity=10**6))
deadline = time.monotonic() + 20
for number in range(12):
    while time.monotonic() < deadline:
        try:
            database.submit([row(number)]).result(timeout=20)
        except Exception as error:
            print(error, file=sys.stderr)
            time.sleep(0.1)
        else:
            print(number, number, flush=True)
            break
"""


def syscalls(count, home):
    """Let the kernel fail the K-th call of a storing process, for every K up to `count`."""
    if shutil.which("strace") is None:
        raise CannotError("there is no strace")
    failures, trials, faults = [], 0, 0
    calls = ("fdatasync", "fsync", "pwrite64", "openat", "ftruncate")
    for place in range(1, count + 1):
        started = [(call, home / f"{call}-{place}") for call in calls]
        running = [strained(call, place, directory) for call, directory in started]
        for (call, directory), process in zip(started, running, strict=True):
            out, err = process.communicate(timeout=60)
            ranges = [tuple(map(int, line.split())) for line in out.splitlines()]
            lost, same = lost_of(directory, ranges)
            trials += 1
            began = "Error" not in err.splitlines()[-1] if err else True
            recovered = len(ranges) == 12 or not (began and process.returncode == 0)
            faults += bool(err)
            if lost or not same or not recovered:
                failures.append({"call": call, "place": place, "lost": lost, "same": same})
    return {"failures": failures, "runs": trials, "faults_told": faults}


def strained(call, place, directory):
    """Start a storing process whose place-th such call on its files fails."""
    directory.mkdir()
    error = "ENOSPC" if place % 2 else "EIO"
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", f"{directory}.trace"]
    for path in (directory, directory / "weather.db", directory / "weather.db-wal"):
        command += ["-P", str(path)]
    command += ["-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={place}"]
    command += [sys.executable, "-c", STORING, str(directory), str(Path(__file__).parent)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fuzz(count, home):
    """Let schemathesis make up `count` requests for each operation of the OpenAPI document."""
    tool = Path(sys.executable).with_name("schemathesis")
    if not tool.exists():
        raise CannotError("there is no schemathesis")
    with Serving(home / "fuzz", Listen(port=0)) as serving:
        command = [str(tool), "run", f"{serving.url}/openapi.json", "--no-color", "--seed", "1"]
        command += ["-H", f"Authorization: Bearer {serving.token}", "--max-examples", str(count)]
        phases = "fuzzing" if count < 10 else "coverage,fuzzing"
        command += ["--exclude-path", "/v1/events", "--phases", phases]
        command += ["--continue-on-failure", "--suppress-health-check", "all"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=7200, check=False, cwd=home
        )
        problems = serving.database.problems()
    made = [line.strip() for line in done.stdout.splitlines() if "generated" in line]
    failures = [] if done.returncode == 0 else done.stdout.splitlines()[-60:]
    return {"failures": failures + problems, "made": made}


def careless(change):
    """Have every connection to a database change what it executes."""
    connect = sqlite3.connect

    class Careless(sqlite3.Connection):
        def execute(self, statement, *values):
            return super().execute(change(statement), *values)

    sqlite3.connect = lambda *places, **more: connect(*places, factory=Careless, **more)


def forget_to_sync():
    """Plant: acknowledge what was written but not synced."""
    careless(lambda text: text.replace("synchronous=FULL", "synchronous=OFF"))


def acknowledge_first():
    """Plant: acknowledge some batches that are not committed."""
    careless(lambda t: "ROLLBACK" if t == "COMMIT" and random.random() < 0.5 else t)


PLANTS = {
    "no-sync": forget_to_sync,
    "early": acknowledge_first,
}
PARTS = {
    "kills": (kills, 1.0),
    "power": (power, 0.2),
    "archive": (archive, 0.2),
    "damage": (damage, 6.4),
    "turns": (turns, 1.0),
    "full": (full, 0.1),
    "syscalls": (syscalls, 0.01),
    "fuzz": (fuzz, 0.1),
}


def run(part, count, plant, seed):
    """Run one part in a directory of its own; return whether all is well."""
    random.seed(f"{seed} {part}")
    home = Path(tempfile.mkdtemp(prefix=f"soak-{part}-"))
    started = time.monotonic()
    said = {"part": part, "plant": plant, "seed": seed, "trials": count}
    try:
        if plant:
            PLANTS[plant]()
        found = PARTS[part][0](count, home)
    except CannotError as reason:
        print(json.dumps({**said, "skipped": str(reason)}), flush=True)
        return True
    finally:
        shutil.rmtree(home, ignore_errors=True)
    said["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps({**said, **found}), flush=True)
    too_many_void = 100 * found.get("void", 0) > count
    return not (found["failures"] or too_many_void)


def in_a_child(job, seed):
    """Run one job in a fork of this process, which knows no threads; return whether it went well."""
    process = os.fork()
    if process == 0:
        try:
            os._exit(int(not run(*job, seed)))
        except BaseException:  # noqa: BLE001 - told, and then it is over
            traceback.print_exc()
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def job_of(word, count):
    """Return part, trials and plant of PART=TRIALS+PLANT."""
    rest, _, plant = word.partition("+")
    part, _, trials = rest.partition("=")
    if part not in PARTS or (plant and plant not in PLANTS) or (trials and not trials.isdigit()):
        raise SystemExit(f"{word}: one of {', '.join(PARTS)}, =TRIALS, +{' or +'.join(PLANTS)}")
    return part, int(trials or count), plant


def main():
    """Run the parts asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(
        usage="soak_nws.py [--n N] [--engine auto] [--seed N] all | PART[=TRIALS][+PLANT] .."
    )
    parser.add_argument("jobs", nargs="+")
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--engine", choices=["numpy", "auto"], default="numpy")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    globals()["ENGINE"] = options.engine
    jobs = [job_of(word, options.n) for word in options.jobs if word != "all"]
    if "all" in options.jobs:
        jobs += [(p, max(4, round(options.n * share)), "") for p, (_, share) in PARTS.items()]
    warm(engine=ENGINE)
    well = [
        in_a_child(job, options.seed) for job in jobs
    ]  # one that fails does not spare the others
    return int(not all(well))


if __name__ == "__main__":
    sys.exit(main())

"""One scheduler, several users: each user's jobs run with that user's rights, by that user's own job runner."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sites import LONG, SAMPLE, SHORT
from users import ADA, BOB, SCHEDULER, lacking
from waiting import until

pytestmark = [
    pytest.mark.more,
    pytest.mark.mpi,
    pytest.mark.skipif(bool(lacking()), reason=lacking()),
]


class User:
    """What one user does, with that user's rights."""

    def __init__(self, site, uid):
        self.site, self.uid = site, uid
        self.home = site / str(uid)
        self.home.mkdir(mode=0o700)
        os.chown(self.home, uid, uid)
        self.environment = {
            **os.environ, "XDG_STATE_HOME": str(self.home), "HOME": str(self.home),
            "APPLES_SCHEDULER": str(site / "lab"),
        }  # fmt: skip
        self.processes = []

    def begin(self, *words):
        one = subprocess.Popen(
            [sys.executable, "-m", "apples", *words], cwd=SAMPLE, env=self.environment,
            user=self.uid, group=self.uid, extra_groups=[], stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(one)
        line = one.stderr.readline()
        assert "ready at" in line or "runs the jobs" in line, line + one.stderr.read()
        return one

    def run(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "apples", *words], cwd=SAMPLE, env=self.environment,
            user=self.uid, group=self.uid, extra_groups=[], capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def ask(self, *words):
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def submit(self, *words):
        return self.ask("submit", *words)["job"]

    def job(self, name):
        return next(one for one in self.ask("queue")["jobs"] if one["job"] == name)

    def until(self, name, state):
        until(lambda: self.job(name)["state"] == state, 120)
        return self.job(name)

    def end(self, one, number=signal.SIGTERM):
        one.send_signal(number)
        one.wait(30)
        one.stderr.close()
        self.processes.remove(one)


class Lab:
    """A scheduler that is a user of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.operator = User(folder, SCHEDULER)
        (folder / "lab").mkdir()
        os.chown(folder / "lab", SCHEDULER, SCHEDULER)
        self.ada, self.bob = User(folder, ADA), User(folder, BOB)
        self.start()

    def start(self):
        place = str(self.folder / "lab")
        self.scheduler = self.operator.begin(
            "scheduler", "--shared", "--directory", place, "--policy", "equipartition"
        )

    def close(self):
        for job in self.operator.ask("queue")["jobs"]:
            self.operator.run("cancel", job["job"])
        for user in (self.ada, self.bob, self.operator):
            for one in [*user.processes]:
                user.end(one)


@pytest.fixture
def lab():
    folder = Path(tempfile.mkdtemp(prefix="apples-users-"))
    folder.chmod(0o711)
    one = Lab(folder)
    yield one
    one.close()
    shutil.rmtree(folder)


def owners_of(record):
    """Return the users whose processes bear a job's mark."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if record in (place / "environ").read_bytes().decode(errors="replace"):
                found.add(place.stat().st_uid)
        except OSError:
            continue
    return found


def test_jobs_run_as_their_users_wait_for_their_job_runners_and_are_changed_by_their_owners(lab):
    ada, bob = lab.ada, lab.bob
    first = ada.submit("--min", "1", "--max", "3", *LONG)
    waiting = ada.job(first)
    assert (waiting["state"], waiting["user"]) == ("held", f"uid:{ADA}")
    assert f"uid:{ADA}" in waiting["reason"]
    ada.begin("scheduler", "--run-my-jobs")
    bob.begin("scheduler", "--run-my-jobs")
    record = ada.until(first, "running")["record"]
    assert owners_of(record) == {ADA}
    second = bob.submit("--min", "1", "--max", "3", *LONG)
    other = bob.until(second, "running")["record"]
    until(lambda: len(ada.job(first)["hosts"]) == 2, 120)  # shrunk by its own job runner
    assert owners_of(other) == {BOB}
    for user, job in ((ada, second), (bob, first)):
        refused = user.run("cancel", job)
        assert refused.returncode == 2
        assert refused.stderr.endswith(" [permission-denied]\n"), refused.stderr
    assert ada.run("drain", "ada").returncode == 2
    assert bob.run("logs", first).returncode == 2
    assert ada.run("logs", first).returncode == 0
    assert bob.ask("cancel", second)["state"] == "cancelled"
    until(lambda: len(ada.job(first)["hosts"]) == 3, 120)
    assert lab.operator.ask("cancel", first)["state"] == "cancelled"
    assert owners_of(record) == set()
    assert not any((lab.operator.home / "apples" / "jobs").glob("*"))


def test_a_scheduler_and_a_job_runner_that_are_killed_harm_no_job_and_start_none_twice(lab):
    ada = lab.ada
    runner = ada.begin("scheduler", "--run-my-jobs")
    running = ada.submit("--min", "2", *LONG)
    record = ada.until(running, "running")["record"]
    ada.end(runner, signal.SIGKILL)
    lab.operator.end(lab.scheduler, signal.SIGKILL)
    lab.start()
    waits = ada.submit("--min", "1", *SHORT)
    assert f"uid:{ADA}" in ada.job(waits)["reason"]
    ada.begin("scheduler", "--run-my-jobs")
    ada.until(waits, "finished")
    found = ada.job(running)
    assert (found["state"], found["record"], found["attempt"]) == ("running", record, 1)
    assert ada.ask("cancel", running)["state"] == "cancelled"


def test_what_its_user_has_not_submitted_is_never_begun(lab):
    ada = lab.ada
    job = ada.submit("--min", "1", *SHORT)
    key = ada.home / "apples" / "submission-key"
    key.write_text("0" * 64 + "\n")  # as if another had sealed it
    ada.begin("scheduler", "--run-my-jobs")
    failed = ada.until(job, "failed")
    assert failed["reason"]
    assert not (ada.home / "apples" / "jobs" / failed["record"]).exists()
    ada.until(ada.submit("--min", "1", *SHORT), "finished")

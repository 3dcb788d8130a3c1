"""A last look at hosts whose guard was not heard: over a new connection, what bears the run's mark is killed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from apples.launch.hydra import LAUNCH_FILE, Command
from apples.launch.remote import shipping
from apples.launch.remote.ask import Question, ask

LEFTOVERS = "apples.launch.leftovers"
MODULES = ("apples.launch.watchdog", LEFTOVERS)
KILL_SECONDS = 2.0
SECONDS = 6.0
"""For all hosts together; a guard that lives needs much less."""


def swept(command: Command, hosts: Sequence[str], job: str) -> list[str]:
    """Return those of `hosts` of which nobody knows afterwards whether something of the run is left."""
    if not hosts:
        return []
    remote = json.loads(command.files[LAUNCH_FILE])["remote"].values()
    places = {there["hosts"][0]["host"]: there for there in remote}
    questions = {}
    for host in hosts:
        told = {"job": job, "folder": places[host]["folder"], "seconds": KILL_SECONDS}
        parcel = shipping.parcel(MODULES, f"{LEFTOVERS}:sweep", told)
        questions[host] = Question(places[host]["ssh"], parcel)
    answers = ask(questions, SECONDS)
    return [host for host, answer in answers.items() if answer.code != 0]

"""What-if questions about a queue: the question, its command, and the steps that make the change real."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.cluster.text import SHOWN_STARTS, interval_text

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Supposition:
    """The changes of a what-if question.

    Attributes
    ----------
    policy
        Empty: the present policy.
    hosts
        Number of additional hosts; below zero: of hosts that are removed.
    job, minimum
        A waiting job and its new fewest hosts; no job: all jobs stay as they are.
    """

    policy: str = ""
    hosts: int = 0
    job: str = ""
    minimum: int = 1

    def body(self) -> dict[str, Any]:
        """Return the body of the request to the scheduler.

        Examples
        --------
        >>> Supposition(hosts=-2, job="lab.7", minimum=3).body()
        {'policy': '', 'hosts_more': 0, 'hosts_less': 2, 'minimum': {'lab.7': 3}}
        """
        return {
            "policy": self.policy, "hosts_more": max(0, self.hosts), "hosts_less": max(0, -self.hosts),
            "minimum": {self.job: self.minimum} if self.job else {},
        }  # fmt: skip

    def command(self) -> str:
        """Return the ``apples queue --what-if`` command for the same question.

        Examples
        --------
        >>> Supposition("fcfs", -2).command()
        'apples queue --what-if --policy fcfs --hosts-less 2'
        """
        words = ["apples", "queue", "--what-if"]
        if self.policy:
            words += ["--policy", self.policy]
        if self.hosts:
            words += ["--hosts-more" if self.hosts > 0 else "--hosts-less", str(abs(self.hosts))]
        if self.job:
            words += ["--minimum", f"{self.job}={self.minimum}"]
        return shlex.join(words)

    def steps(self, document: Document) -> list[tuple[str, str]]:
        """Return the steps that make the change real, each in words and as a command.

        Parameters
        ----------
        document
            As ``apples.queue/1``.
        """
        found, name = [], str(document["name"])
        again = ["apples", "scheduler", "--name", name]
        if self.policy:
            words = "Stop the scheduler and start it with this; its jobs go on"
            found.append((words, shlex.join([*again, "--policy", self.policy])))
        if self.hosts > 0:
            words = f"Add {self.hosts} to its host list, stop it and start it again"
            found.append((words, shlex.join(again)))
        free, held = (
            [one["host"] for one in document["hosts"] if one["state"] == state]
            for state in ("free", "held")
        )
        for host in (free + held)[: max(0, -self.hosts)][:SHOWN_STARTS]:
            words = (
                "Take a free host out"
                if host in free
                else "Take a host out when its job leaves it"
            )
            found.append((words, shlex.join(["apples", "drain", host])))
        if self.job:
            found.append(("Cancel the job", shlex.join(["apples", "cancel", self.job])))
            found.append(("and submit it again, as it was but with", f"--min {self.minimum}"))
        return found


def starts(answer: Document, now: float) -> list[tuple[str, Sequence[str]]]:
    """Return the starts of the first `SHOWN_STARTS` jobs, without and with the changes.

    Parameters
    ----------
    answer
        As ``apples.what-if/1``.
    """
    both = answer["now"]["starts"], answer["then"]["starts"]
    return [
        (job, [interval_text(one[job], now) if one.get(job) else "unknown" for one in both])
        for job in list(both[1])[:SHOWN_STARTS]
    ]

"""`PlanSpec` and `RunSpec`: what a session is asked to plan or to run.

Standard library only: a job's supervisor, the command line and a list of jobs read these without loading what
planning needs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from apples.agent.documents import LEARNED_WEATHERS
from apples.errors import UsageError

if TYPE_CHECKING:
    from apples.agent.documents import Asked
    from apples.agent.selector import Filter, HostFilter

BY_NAME = (
    "hosts",
    "template",
    "user",
    "blueprint",
    "weather",
    "planner",
    "distance",
    "model",
    "messages",
)
BY_NAME_OF_RUN = (*BY_NAME, "actuator", "output", "verify")
"""Fields of `PlanSpec` and `RunSpec` that options of the same names give."""
VERIFY = ("auto", "full", "sample", "none")
"""How a result may be asked to be verified."""


def asked_for(word: str | bool) -> Asked:
    """Return how a result is asked to be verified, one of `VERIFY`; True is ``auto``, False is ``none``.

    Raises
    ------
    UsageError
        Another word. Permanent.

    Examples
    --------
    >>> asked_for(True), asked_for("sample")
    ('auto', 'sample')
    """
    if isinstance(word, bool):
        return "auto" if word else "none"
    if word not in VERIFY:
        raise UsageError(
            f"--verify '{word}': known are full, sample, none",
            code="value-unknown",
            option="--verify",
            value=word,
            known=["full", "sample", "none"],
        )
    return cast("Asked", word)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One decision: which hosts, and how many rows on each, for one application.

    Attributes
    ----------
    hosts, template, user
        Files: the host list, the application template, the user specifications; None for these: the user
        has no wishes.
    settings
        Parameters of the template to set, such as ``{"grid": 2000}``.
    blueprint, planner, distance, model
        A name, ``module:name``, ``file.py:name``, or the callable itself; None: what the user specifications
        prefer, else the default.
    host_filters, filters
        Functions of your own that refuse a host, or a schedule, by returning a `Rejection`; they are asked after
        those of apples.
    weather
        ``live``, ``remembered``, ``static``, or a recorded weather file.
    learned
        Whether a static or recorded weather uses the learned state too: measured speeds and corrections.
        A live or remembered weather always does.
    fresh
        Whether a live weather is measured as a whole, whatever is remembered and whatever the plan depends on.
    on
        Hosts that somebody has chosen already, of the list: the plan uses no others. Empty: any. A job may be
        resized to others later.
    silent
        Hosts of the list that are known not to answer: nobody looks at them, and no plan uses them.
    messages
        Document of a run (``apples.run/1``) whose messages say which hosts are to be neighbours; None: no.
    contents
        Texts that are used in place of the files of these names, ``template`` and ``user``. A queued job carries
        the texts of its submission. The folder of the template stays the folder of its program.
    """

    hosts: str | Path = "hosts.toml"
    template: str | Path = "template.toml"
    user: str | Path | None = "user.toml"
    settings: Mapping[str, str | float] = field(default_factory=dict)
    blueprint: str | Callable[..., Any] | None = None
    weather: str = "live"
    planner: str | Callable[..., Any] | None = None
    distance: str | Callable[..., Any] | None = None
    model: str | Callable[..., Any] | None = None
    host_filters: tuple[HostFilter, ...] = field(default=(), kw_only=True)
    filters: tuple[Filter, ...] = field(default=(), kw_only=True)
    learned: bool = field(default=False, kw_only=True)
    fresh: bool = field(default=False, kw_only=True)
    on: tuple[str, ...] = field(default=(), kw_only=True)
    silent: tuple[str, ...] = field(default=(), kw_only=True)
    messages: Path | None = field(default=None, kw_only=True)
    contents: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def command(self) -> str:
        """The command that runs this: ``apples run`` with options; ``apples.run(spec)`` where it has functions."""
        own = (self.blueprint, self.planner, self.distance, self.model)
        if self.host_filters or self.filters or any(map(callable, own)):
            return "apples.run(spec)"
        return shlex.join(["apples", "run", *self._options()])

    def _options(self) -> list[str]:
        plain = type(self)()
        words = []
        for name in self._by_name():
            value = getattr(self, name)
            value = asked_for(value) if name == "verify" else value
            if value is not None and value != getattr(plain, name):
                words += [f"--{name}", str(value)]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words + [f"--{name}" for name in ("learned", "fresh") if getattr(self, name)]

    def _by_name(self) -> tuple[str, ...]:
        return BY_NAME

    @property
    def uses_learned(self) -> bool:
        """Whether the plan uses the learned state."""
        return self.learned or self.weather in LEARNED_WEATHERS


@dataclass(frozen=True, slots=True)
class RunSpec(PlanSpec):
    """One run: a decision, and how it is started, checked and kept.

    Attributes
    ----------
    actuator
        ``local``, ``ssh`` or ``slurm``; None: ssh where the host list has other machines, else local.
    slurm
        What the site's Slurm wants to be told, such as ``{"partition": "short"}``.
    output
        Folder to keep the result in.
    verify
        How the result is compared with that of a sequential run: ``full``, ``sample``, ``none``, or ``auto``: in
        full where that is short beside the run, else by a sample. True is ``auto``, False is ``none``.
    learn
        Whether the next prediction learns from this run; None: if its plan used the learned state.
    warm, commit_seconds
        Of a job that can be resized: hosts on which a parked group may wait for a growth, and the seconds between
        two committed states (0: none; None: in memory alone, as often as costs little).
    count_messages
        Whether the messages between its ranks are counted.
    calibrate
        Whether hosts of the plan on which the application was never measured at this size are measured first. Only
        under live weather: no other plan uses a measured speed.
    """

    actuator: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    output: Path | None = None
    verify: str | bool = "auto"
    learn: bool | None = None
    warm: tuple[str, ...] = ()
    commit_seconds: float | None = None
    count_messages: bool = False
    calibrate: bool = field(default=True, kw_only=True)

    def _options(self) -> list[str]:
        words = PlanSpec._options(self)  # no super(): a class with slots is made twice
        for name, value in self.slurm.items():
            words += ["--slurm", f"{name}={value}"]
        words += ["--warm", ",".join(self.warm)] if self.warm else []
        words += [] if self.commit_seconds is None else ["--commit", str(self.commit_seconds)]
        words += ["--count-messages"] if self.count_messages else []
        return words if self.calibrate else [*words, "--no-calibrate"]

    def _by_name(self) -> tuple[str, ...]:
        return BY_NAME_OF_RUN

    @property
    def learns(self) -> bool:
        """Whether the next prediction learns from this run. Only a plan with the learned state can correct it."""
        return self.uses_learned if self.learn is None else self.learn


@dataclass(frozen=True, slots=True)
class JobFiles:
    """Where a supervised job keeps what it is controlled by.

    Attributes
    ----------
    id
        The job's name.
    folder
        Holds the job's secret; its control port is announced there.
    commits
        Holds its committed states.
    attempt, epoch
        How often it was started, this time included, and the last number of its map before: from the second time
        on it begins with its last commit.
    scheduled
        Whether a scheduler says on which hosts it is.
    topologyd
        Host -> the socket of the topology daemon that has given it CPUs there, under its name.
    """

    id: str
    folder: Path
    commits: Path
    attempt: int = 1
    epoch: int = 0
    scheduled: bool = False
    topologyd: Mapping[str, str] = field(default_factory=dict)

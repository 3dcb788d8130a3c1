"""How fast the emulated hosts are: the sample application's own kernel, run on their CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from apples.agent.information import load_information, program_of
from apples.lab.document import LabDocument
from apples.launch.calibrate import calibrate
from apples.launch.sample import example_folder
from apples.resources import Host

GRID, ROWS = 2000, 400
"""A strip of 13 MB: past the caches, and measured in half a second."""


def measured_speeds(document: LabDocument, hosts: Path) -> Mapping[str, float]:
    """Return the dedicated seconds per point of each host; hosts on the same CPUs are measured once.

    Quotas are left out: what is measured is processor time, which a quota does not change.

    Parameters
    ----------
    hosts
        The lab's host list, without speeds.

    Raises
    ------
    ApplesError
        The sample application could not be run.
    """
    folder = example_folder()
    files = (hosts, folder / "template.toml", folder / "user.toml")
    information = load_information(*files, settings={"grid": GRID})
    parameters = information.application.parameters
    known: dict[tuple[int, ...], float] = {}
    for entry in document.host:
        if entry.cpus not in known:
            name = information.implementation(information.hosts[entry.name])
            place, program = Host(entry.name, cpus=entry.cpus), program_of(information, name)
            (found,) = calibrate(place, program, name, parameters, [ROWS])
            known[entry.cpus] = found.seconds_per_point
    return {entry.name: known[entry.cpus] for entry in document.host}

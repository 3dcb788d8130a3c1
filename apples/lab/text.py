"""An emulated cluster: documents and text."""

from __future__ import annotations

from typing import Any

from apples.lab import EmulatedHost, Lab
from apples.ui.units import amount, digits

SCHEMA = "apples.lab/1"
Document = dict[str, Any]


def lab_document(lab: Lab) -> Document:
    """Return a lab as ``apples.lab/1``."""
    return {
        "schema": SCHEMA,
        "name": lab.name,
        "hosts": str(lab.hosts),
        "ssh_config": lab.ssh_config or None,
        "interface": lab.interface,
        "address": lab.agent,
    }


def lab_hosts_document(lab: Lab) -> Document:
    """Return a lab with its machines."""
    return lab_document(lab) | {"machines": [_machine(one) for one in lab.machines]}


def lab_text(lab: Lab) -> str:
    """Return that a lab is up, and what to type next."""
    return (
        f"lab '{lab.name}' is up: {len(lab.machines)} hosts\nhost list: {lab.hosts}\n"
        f"look at it: apples lab hosts; end it: apples lab down {lab.name}"
    )


def lab_hosts_text(lab: Lab) -> str:
    """Return the machines of a lab, a line each."""
    width = max(len(one.name) for one in lab.machines)
    return "\n".join(_line(one, width) for one in lab.machines)


def _line(one: EmulatedHost, width: int) -> str:
    cpu = "all" if one.cpu is None else digits(one.cpu)
    limits = f"cpu {cpu:5} memory {amount(one.memory) if one.memory else 'all':8}"
    state = "up" if one.alive else "gone"
    return f"{one.name:{width}}  {one.address:15}  {one.site:12}  {limits}  {state}"


def _machine(one: EmulatedHost) -> Document:
    return {
        "name": one.name,
        "address": one.address,
        "site": one.site,
        "cpu": one.cpu,
        "cpus": list(one.cpus),
        "memory": one.memory,
        "pid": one.pid,
        "up": one.alive,
    }

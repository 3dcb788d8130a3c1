"""The measured speeds of an application on the hosts of a list, as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apples.agent.models.model import SpeedFunction
from apples.ui.units import amount, digits


def calibration_document(
    name: str, version: str, found: Mapping[str, Mapping[str, SpeedFunction]]
) -> dict[str, Any]:
    """Return the measured speeds of an application as ``apples.calibration/1``."""
    hosts = {
        host: {implementation: _curve(speed) for implementation, speed in speeds.items()}
        for host, speeds in found.items()
    }
    return {
        "schema": "apples.calibration/1",
        "application": name,
        "version": version,
        "hosts": hosts,
    }


def _curve(speed: SpeedFunction) -> dict[str, Any]:
    return {
        "rows": list(speed.rows),
        "seconds_per_point": list(speed.seconds_per_point),
        "error": speed.error,
        "columns": speed.columns,
        "memory": speed.memory if math.isfinite(speed.memory) else None,
    }


def calibration_text(found: Mapping[str, Mapping[str, SpeedFunction]]) -> str:
    """Return the measured speeds, a line a host and implementation."""
    lines = []
    for host, speeds in found.items():
        for name, speed in speeds.items():
            points = ", ".join(
                f"{digits(seconds * 1e9)} at {rows:.0f} rows"
                for rows, seconds in zip(speed.rows, speed.seconds_per_point, strict=True)
            )
            own = (
                f"; {amount(speed.memory)} of its own free" if math.isfinite(speed.memory) else ""
            )
            lines.append(f"{host}  {name}  ns a point: {points}{own}")
    return "\n".join(lines)

"""The Network Weather Service: what each host and each link will give next.

A library that imports nothing of `apples`. In reading order:

1. `nws.measurement`: the name of a series and one value of it; the resources and their units;
   `nws.batches`: several as a message.
2. `nws.sensor` and `nws.sensors`: what measures: CPU, memory, latency, bandwidth, replay.
   `nws.linux` reads the kernel, `nws.tcp` is the far end of a link, `nws.share` turns run queues
   into shares of a CPU and back.
3. `nws.memory` and `nws.memories`: where measurements are kept.
4. `nws.forecaster` and `nws.forecasters`: what forecasts, one number at a time, and the choice of
   the one that has been wrong least (`nws.window` is what the medians look through).
   `nws.frame`: those that forecast a mean over a frame, with an interval; `nws.bank` does that for
   thousands of series at once. `nws.profiles` has the batteries by name; `nws.scored` reports a
   `nws.forecast.Forecast` with its errors (`nws.grid` tells it what is missing). `nws.backtesting`
   says how good they would have been.
5. `nws.weather`: all forecasts at one moment, frozen (as text: `nws.weather_format`).
6. `nws.service`: the five together, in this process.
7. As a service: `nws.journal` (the log), `nws.memories` (a memory on it), `nws.forecasting` and
   `nws.snapshots` (forecasters that survive), `nws.station` (these together), `nws.web` (over
   HTTP; `nws.ticks` puts a range on regular times), `nws.tokens` (for whom), `nws.leases` (who is
   there), `nws.client`.
8. `nws.sensing`: the sensor process of a host; `nws.clique`: whose turn it is to probe;
   `nws.budget`: what probing may cost; `nws.prometheus`: hosts that Prometheus watches.
9. `nws.checks`: the contracts as functions that run, on ours and on yours.

Everything listed in ``__all__`` is to be had from here and loaded when it is first asked for, so
that a sensor's process loads sensors only. `nws.checks` is imported by its own name.

Sources: Wolski, Spring, Hayes 1999, "The Network Weather Service: a distributed resource
performance forecasting service for metacomputing"; NWS 2.x.
"""

from importlib import import_module

# The stub beside this file is the only table of names (SPEC 1 of Scientific Python, lazy loading):
# type checkers read it, and so does the interpreter. One import stands on each of its lines.
with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - pathlib costs more than all else here
    _HOME_OF = {line.split()[3]: line.split()[1] for line in _stub if line.startswith("from ")}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> object:
    """Return what `name` of the front door stands for, loading its module on first use."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

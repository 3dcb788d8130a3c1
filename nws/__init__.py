"""The Network Weather Service: forecasts of hosts and links.

A library that imports nothing of `apples`. In reading order:

1. `nws.measurement`: the name of a series and one value of it; the resources and their units;
   several measurements as a message.
2. `nws.sensor`, the contract, and `nws.sensors`: CPU, memory, disk, latency, bandwidth, replayed
   series, hosts that Prometheus watches.
3. `nws.forecaster`, the contract, and `nws.forecasters`: the predictors one number at a time, the
   choice among them, the profiles that combine them, and the scoring of a forecaster against the values that
   came. `nws.engine` computes the default profile.
   `nws.forecast`: a number with its error and interval. `nws.backtesting`: how good the forecasts
   would have been on a recorded series.
4. `nws.memory`: where measurements are kept, in this process or in a log on the disk.
5. `nws.weather`: all forecasts at one moment, frozen.
6. `nws.service`: sensors, memory and forecasters together, in this process or over HTTP;
   `nws.client` asks such a service.
7. `nws.sensing`: the sensor process of a host. `nws.clique`: which host may probe the network when.
8. `nws.errors`: the base of all errors, each with a code and fields.
9. `nws.checks`: the contracts as functions that run, on our implementations and on yours.

Everything listed in ``__all__`` is to be had from here and loaded when it is first asked for, so
that a sensor's process loads sensors only. `nws.checks` is imported by its own name.

Sources: Wolski, Spring, Hayes 1999, "The Network Weather Service: a distributed resource
performance forecasting service for metacomputing"; NWS 2.x.
"""

from importlib import import_module

# The stub beside this file is the only table of names (SPEC 1 of Scientific Python, lazy loading):
# type checkers read it, and so does the interpreter. One import stands on each of its lines. The names
# after the comment "Not public" are for the tests, so that a module can move.
__all__: list[str] = []
_HOME_OF: dict[str, tuple[str, str]] = {}
with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123 - pathlib costs more than all else here
    for _line in _stub:
        if _line.startswith("from "):
            _, _module, _, _name, _, _alias = _line.split()
            _HOME_OF[_alias] = _module, _name
        elif _line.startswith("# Not public:"):
            __all__.extend(_HOME_OF)


_MOVED = ("picture",)
"""Names that were here in apples 0.2. The package that has them now names their places in its entry points."""


def __getattr__(name: str) -> object:
    """Return the object `name` of the front door, loading its module on first use."""
    if name in _MOVED:
        (found,) = import_module("importlib.metadata").entry_points(group="nws_moved", name=name)
        text = f"nws.{name} moved: write `from {found.module} import {name}`"
        import_module("warnings").warn(text, FutureWarning, stacklevel=2)
        module, its_name = found.module, found.attr
    elif name in _HOME_OF:
        module, its_name = _HOME_OF[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(module)
    if not hasattr(home, its_name):
        import_module(f"{module}.{its_name}")
    value = getattr(home, its_name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

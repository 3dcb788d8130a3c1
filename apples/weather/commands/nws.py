"""``nws``: the Network Weather Service, as a service and of this machine."""

from __future__ import annotations

from collections.abc import Mapping

try:
    from apples.ui.command_line import Entry, run
except KeyboardInterrupt:
    raise SystemExit(130) from None

COMMANDS: Mapping[str, Entry] = {
    "serve": Entry(
        "apples.weather.commands.serve:serve", "Run the service: memory and forecasts."
    ),
    "sense": Entry(
        "apples.weather.commands.sense:sense", "Measure this machine: once, or for a service."
    ),
    "load": Entry(
        "apples.weather.load.commands:load", "Print the free CPUs of hosts, and the use of jobs."
    ),
    "forecast": Entry("apples.weather.commands.ask:forecast", "Forecast series of a service."),
    "query": Entry("apples.weather.commands.ask:query", "List the series of a service."),
    "extract": Entry("apples.weather.commands.ask:extract", "Print the measurements of a series."),
    "top": Entry("apples.weather.commands.ask:top", "Series, forecasts and bands, live."),
    "import": Entry(
        "apples.weather.commands.import_history:import_history",
        "Import past measurements, for example of Prometheus.",
    ),
    "doctor": Entry("apples.weather.commands.doctor:doctor", "Diagnose a service."),
    "check": Entry(
        "apples.weather.commands.database:check", "Check the database of a service for damage."
    ),
    "backup": Entry("apples.weather.commands.database:backup", "Copy the database of a service."),
    "status": Entry("apples.weather.commands.ask:status", "Print the state of a service."),
    "backtest": Entry("apples.weather.commands.backtest:backtest", "League table of predictors."),
}

RENAMED = {
    "sense --udp": "nws sense --listen ADDRESS:PORT measures latency and losses by TCP",
    "sense --window": "nws sense --bytes-per-day BYTES",
    "sense --link-share": "a fixed limit, 1 % of a link's time",
    "sense --cpu-share": "a fixed limit, 0.5 % of a CPU",
}


def main() -> None:
    """Run the command line and exit."""
    run(
        "nws",
        COMMANDS,
        "Network Weather Service: measurements and forecasts of hosts and links.",
        "Exit codes: 0 ok, 2 bad input, 4 cannot be measured or does not answer. "
        "Start with: nws sense",
        renamed=RENAMED,
    )

"""Documents of runs and demos for the tests of the pages, built as the programs build them."""

from apples.jobs import METHODS, demo_document


def strip(host, rows, *, cpu=0.61, error=0.12, implementation="compiled", samples=6):
    return {
        "host": host,
        "site": "local",
        "rows": rows,
        "implementation": implementation,
        "compute_seconds": 0.0113,
        "communicate_seconds": 0.00021,
        "seconds": 0.01151,
        "cpu": cpu,
        "cpu_error": error,
        "cpu_method": "sliding_median_31",
        "cpu_samples": samples,
        "memory": 36.1e6,
        "free_memory": 6.05e9,
    }


def plan(strips, *, blueprint="minimum_execution_time", iterations=227):
    hosts = [one["host"] for one in strips]
    interval = [0.0097 * iterations, 0.0164 * iterations]
    return {
        "schema": "apples.plan/1",
        "blueprint": blueprint,
        "application": {
            "name": "jacobi2d",
            "version": "1",
            "parameters": {"grid": sum(one["rows"] for one in strips), "top": "1"},
            "rows": sum(one["rows"] for one in strips),
            "columns": 3000,
            "iterations": iterations,
        },
        "chosen": {
            "hosts": hosts,
            "rows": [one["rows"] for one in strips],
            "iteration_seconds": 0.01151,
            "execution_seconds": 0.01151 * iterations,
            "interval": interval,
            "iteration_interval": [0.0097, 0.0164],
            "coverage": {"class": "site", "level": 0.8, "runs": 12, "inside": 7, "of": 10},
            "cost": 0.0,
            "speedup": 1.7,
            "planner": "time_balancing",
            "strips": strips,
        },
        "next_best": {"hosts": hosts[:1], "iteration_seconds": 0.0177, "ratio": 1.14},
        "considered": 15,
        "feasible": 14,
        "left_out": [{"host": "far", "reason": "its border costs 42.4 ms", "figures": [0.0424]}],
        "rejected": [
            {"hosts": ["old"], "reason": "old has no numpy", "filter": "need", "figures": []}
        ],
        "rejected_total": 1,
        "assumed": ["free memory of bob: not given, taken as unlimited"],
        "weather": {"kind": "measured", "time": 1795174505.78},
        "risk": 0.0,
        "coverage": 0.75,
    }


def measured(host, rows, *, compute=0.0126, communicate=0.00037):
    iterations = 227
    return {
        "host": host,
        "rows": rows,
        "compute_seconds": compute * iterations,
        "communicate_seconds": communicate * iterations,
        "processor_seconds": 0.62 * compute * iterations,
        "cpu_got": 0.62,
        "off": compute / 0.0113 - 1.0,
        "predicted_compute_per_iteration": 0.0113,
        "compute_per_iteration": compute,
        "predicted_communicate_per_iteration": 0.00021,
        "communicate_per_iteration": communicate,
        "other_per_iteration": 0.00052,
    }


def run(
    hosts=("ada", "bob"),
    *,
    blueprint="minimum_execution_time",
    seconds=0.0139,
    inside=True,
    **more,
):
    strips = [
        strip(host, 1000 + 137 * k, implementation=("compiled", "numpy")[k % 2])
        for k, host in enumerate(hosts)
    ]
    own = plan(strips, blueprint=blueprint)
    return {
        "schema": "apples.run/1",
        "plan": own,
        "execution": {
            "iterations": 227,
            "predicted_seconds": own["chosen"]["execution_seconds"],
            "interval": own["chosen"]["interval"],
            "measured_seconds": seconds * 227,
            "iteration_seconds": seconds,
            "predicted_iteration_seconds": 0.01151,
            "off": seconds / 0.01151 - 1,
            "inside": inside,
            "coverage": own["chosen"]["coverage"],
            "startup_seconds": 0.967,
            "residual": 0.001065,
            "files": ["result.npy"],
            "hosts": [
                measured(one["host"], one["rows"], compute=max(0.001, 0.0126 - 0.003 * k))
                for k, one in enumerate(strips)
            ],
        },
        "verified": True,
        "result_sha256": "0be6efcf0298",
        **more,
    }


def refused(blueprint="minimum_execution_time"):
    own = plan([strip("ada", 10)], blueprint=blueprint) | {"chosen": None, "next_best": None}
    return {
        "schema": "apples.run/1",
        "plan": own,
        "execution": None,
        "rejection": "ada lacks 3 GB",
        "verified": None,
        "result_sha256": None,
    }


def demo(repeat=2, hosts=("ada", "bob", "eve"), instead=None):
    """Return a demo document; `instead` maps methods to a run document of theirs."""
    runs = []
    for k in range(repeat):
        for place, method in enumerate(METHODS):
            seconds = 0.0139 - 0.0021 * place + 0.0004 * k
            own = (instead or {}).get(method) or run(
                hosts, blueprint=method, seconds=seconds, inside=place > 0
            )
            runs.append(own)
    return demo_document(runs)

"""Events of runs, as a record has them, for the tests of the timeline."""


def host(name, compute, halo=0.0, wait=None):
    return {
        "host": name,
        "compute_seconds": compute,
        "communicate_seconds": halo,
        "wait_seconds": wait,
        "processor_seconds": None,
    }


def report(seconds, iteration, *hosts, begun=1000.0):
    return {
        "at": begun + seconds,
        "event": "progress",
        "iteration": iteration,
        "iterations": 500,
        "seconds": seconds,
        "residual": None,
        "hosts": list(hosts),
    }


def steady(names, until=4.0, iterations=200, parts=16):
    """A run in which nothing changes: half computing, a tenth halo, the rest waiting."""
    return [
        report(
            until * k / parts,
            iterations * k // parts,
            *(
                host(n, 0.5 * until * k / parts, 0.1 * until * k / parts, 0.4 * until * k / parts)
                for n in names
            ),
        )
        for k in range(1, parts + 1)
    ]


def moved():
    """Two hosts for 2 s of 20 ms an iteration, then a third one: 10 ms. It took 0.25 s to come."""
    events = [{"at": 999.9, "event": "running", "hosts": ["ada", "bob"], "rows": [1000, 1137]}]
    for k in range(1, 9):
        s = k / 4
        events.append(
            report(
                s,
                round(50 * s),
                host("ada", 0.8 * s, 0.1 * s, 0.1 * s),
                host("bob", 0.9 * s, 0.1 * s, 0.0),
            )
        )
    events.append(
        {
            "at": 1002.25,
            "event": "decision",
            "iteration": 100,
            "moved": True,
            "hosts": ["ada", "bob", "eve"],
            "rows": [700, 737, 700],
            "explanation": "bob is late",
            "breach": "bob gives 0.41 of a CPU",
            "predicted_seconds": 0.011,
            "error": 0.1,
            "gain_seconds": 3.5,
            "cost_seconds": 0.3,
            "resize_seconds": 0.25,
        }
    )
    for k in range(1, 9):
        s = k / 4
        three = (host("ada", 1.6 + 0.7 * s, 0.2, 0.2), host("bob", 1.8 + 0.9 * s, 0.2, 0.0))
        events.append(
            report(2.25 + s, round(100 + 100 * s), *three, host("eve", 0.25 * s, 0.0, 0.5 * s))
        )
    return events

"""X1 and X2: the text says nothing the JSON does not, the answer first, on few lines."""

import contextlib
import json
import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import planned
from pages.documents import run as saved_run
from worlds import pool, random_world, symmetric

from apples import Coordinator, Host, Link, NoFeasiblePlanError, SpeedFunction
from apples.agent import (
    Correction,
    Learned,
    PastRun,
    Verification,
    by_kind_and_key,
    check,
    equal_strips_of,
    explained,
    explained_text,
    plan_document,
    plan_text,
    refused_document,
    remedy,
    run_document,
    thresholds,
)
from apples.jobs import (
    METHODS,
    demo_document,
    demo_page,
    demo_text,
    run_record_text,
    run_text,
)
from apples.launch import BorderTimes, HostTimes, Outcome
from apples.ui import duration
from blueprints import minimum_execution_time
from nws import Forecast, Weather

UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9,
    "TB": 1e12, "%": 0.01, "x": 1.0, "": 1.0,
}  # fmt: skip
NUMBER = re.compile(
    r"(?<![\w.])([+-]?\d+(?:\.(\d+))?(?:e([+-]?\d+))?)( ?(?:ns|us|ms|s|[kMGT]?B|%|x))?(?![\w])"
)


def numbers_said(text):
    """Every number of a text: (value in base units, half of its last digit)."""
    for written, decimals, exponent, unit in NUMBER.findall(text):
        scale = UNITS[unit.strip()]
        last = 10.0 ** (int(exponent or 0) - len(decimals))
        yield abs(float(written)) * scale, 0.5 * last * scale


def known_to(document):
    """Every number a JSON document holds: numbers, lengths of lists, and what its sentences say."""
    if isinstance(document, dict):
        for value in document.values():
            yield from known_to(value)
    elif isinstance(document, list):
        yield len(document)
        for value in document:
            yield from known_to(value)
    elif isinstance(document, str):
        yield from (value for value, _ in numbers_said(document))
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield abs(document)


FIXED = re.compile(
    r" and \d+ more( hosts| refusals)?|0 never|" + "rows x columns x seconds_per_point"
)


def missing(text, document):
    """The numbers of a text that its document does not have, after rounding."""
    known = np.array(sorted(set(known_to(json.loads(json.dumps(document))))))
    text = FIXED.sub("", text)
    return [
        value
        for value, half in numbers_said(text)
        if not np.any(np.abs(known - value) <= half * (1 + 1e-6) + 1e-12 * value)
    ]


PAST = tuple(PastRun("site", 1.0, 0.1, (0.9, 1.1), measured) for measured in (1.05, 0.95, 1.2))


def problems(count, seed=31, most=5):
    """Random problems with forecasts, names of letters only."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        size = int(generator.integers(1, most + 1))
        world = random_world(generator, size, capped=bool(generator.integers(2)))
        letters = [chr(97 + i) * 3 for i in range(size)]
        names = dict(zip((h.name for h in world.hosts), letters, strict=True))
        hosts = [replace(h, name=names[h.name]) for h in world.hosts]
        sky = Weather(
            cpu={
                h.name: Forecast(h.cpu, h.cpu * float(generator.uniform(0, 0.2)), "mean", 40, 0.0)
                for h in hosts
                if generator.integers(2)
            }
        )
        yield pool(
            hosts,
            world.information.hosts.network.links,
            grid=world.total,
            weather=sky,
            learned=Learned(
                corrections=by_kind_and_key(
                    [
                        Correction.proven("straggler_factor", tuple(sorted(names)), 1.1)
                        for size in range(2, len(hosts) + 1)
                        for names in combinations((h.identity for h in hosts), size)
                    ]
                ),
                runs=PAST,
            ),
        )


def decided(information):
    coordinator = Coordinator(information)
    with contextlib.suppress(NoFeasiblePlanError):
        coordinator.execute(minimum_execution_time)
    document = plan_document("minimum_execution_time", coordinator.decision_log, information)
    return coordinator, document


def test_every_number_of_the_plans_short_face_is_in_the_json():
    for information in problems(50):
        coordinator, document = decided(information)
        document["remedy"] = remedy(information, coordinator.decision_log)
        assert missing(plan_text(document, ""), document) == []


def test_every_number_of_the_plans_long_face_is_in_the_json():
    for information in problems(8, most=3):
        coordinator, document = decided(information)
        if document["chosen"] is None:
            continue
        changes = thresholds(coordinator, minimum_execution_time)
        document = explained(
            document, coordinator.decision_log, changes, equal_strips_of(coordinator)
        )
        assert missing(explained_text(document, ""), document) == []


def run_of(information, generator):
    """The document of a run that was not quite as predicted, or of none where there is no plan."""
    coordinator, plan = decided(information)
    chosen = coordinator.decision_log.chosen
    if chosen is None:
        return refused_document(plan, plan["rejected"][0]["reason"])
    late = generator.uniform(0.8, 1.3)
    times = tuple(
        HostTimes(
            h.host.name,
            h.compute_seconds * chosen.iterations * generator.uniform(0.8, 1.2),
            h.communicate_seconds * chosen.iterations * generator.uniform(0.3, 3),
        )
        for h in chosen.hosts
    )
    size = int(information.application.border_bytes)
    borders = tuple(
        BorderTimes(pair, size, seconds * generator.uniform(0.3, 3))
        for pair, seconds in zip(pairwise(chosen.names), chosen.border_seconds, strict=True)
    )
    outcome = Outcome(
        chosen.iterations,
        late * chosen.execution_seconds,
        0.4,
        times,
        1e-3,
        "a" * 64,
        borders=borders,
    )
    right = Verification("auto", "full", True, outcome.iterations)
    run = run_document(plan, chosen, outcome, check(chosen, outcome), right)
    run["phases"] = dict(zip(("imports", "here", "loop"), generator.uniform(0, 9, 3), strict=True))
    run["seconds"] = sum(run["phases"].values())
    planned = [border["predicted_seconds"] for border in run["execution"]["borders"]]
    assert planned == list(chosen.border_seconds)
    return run


def test_every_number_of_a_runs_face_is_in_the_json():
    generator = np.random.default_rng(3)
    for information in problems(50, seed=32):
        document = run_of(information, generator)
        if document["execution"]:
            text = run_text(document, "")
            assert missing(text, document) == []
            assert text.split()[0] == str(document["execution"]["iterations"])


def test_a_run_says_where_its_seconds_went_unless_they_cannot_be_felt():
    run = run_of(pool([Host("ada", seconds_per_point=1e-9)]), np.random.default_rng(5))
    run |= {"phases": {"imports": 0.72, "plan": 0.04, "loop": 2.31}, "seconds": 3.07}
    line = run_text(run, "x").splitlines()[-2]
    assert re.findall(r"[\d.]+ s", line) == ["3.1 s", "0.7 s", "2.3 s"]
    assert "3.1 s" not in run_text({**run, "phases": {}}, "x")


def test_every_number_of_the_demos_face_is_in_the_json():
    generator = np.random.default_rng(4)
    runs = []
    for k, information in enumerate(problems(12, seed=33)):
        run = run_of(information, generator)
        run["plan"]["blueprint"] = METHODS[k % 4]
        runs.append(run)
    document = demo_document(runs)
    text = demo_text(document)
    assert missing(text, document) == []
    assert f"{document['ratio_to_blocked']['median']:.2f}" in text.splitlines()[0]


@pytest.mark.parametrize("runs", [3, 6, 12])
def test_a_plan_prints_a_coverage_once_it_prints_intervals(runs):
    hosts = [Host(name, seconds_per_point=1e-9) for name in ("ada", "bob")]
    speeds = {name: {"default": SpeedFunction.constant(1e-9)} for name in ("ada", "bob")}
    known = Learned(speeds, runs=PAST * (runs // 3))
    _, document = decided(pool(hosts, {("local", "local"): Link(1e-6, 1e9)}, learned=known))
    text = plan_text(document, "")
    low, high = document["chosen"]["interval"]
    assert (low < high) == ("ended inside" in text) == (runs == 12)
    assert (low == high) == ("no interval" in text)
    assert missing(text, document) == []


@pytest.mark.parametrize(
    ("inside", "answer"),
    [
        ([None] * 4, "no interval yet"),
        ([None, None, False, True], "1 of 2 inside their 80% interval"),
    ],
)
def test_the_demo_counts_the_runs_that_had_an_interval(inside, answer):
    runs = [saved_run(blueprint=METHODS[0]) for _ in inside]
    for one, word in zip(runs, inside, strict=True):
        one["execution"]["inside"] = word
    document = demo_document(runs)
    assert document["with_interval"] == len(inside) - inside.count(None)
    assert f"; {answer}; " in demo_text(document)
    assert ("no interval yet" in demo_page(document)) == (answer == "no interval yet")


def test_the_demo_without_a_run_verifies_nothing():
    plan = {"blueprint": METHODS[0], "chosen": None}
    document = demo_document([refused_document(plan, "no memory")])
    assert document["verified"] is None
    assert "no memory" in demo_text(document)


def test_the_reader_of_numbers_reads_them():
    text = "in 18.6 ms (20% off), 1.20 x, h3 2x2, 4.00 GB at 1e-08, +- 0.04"
    assert [v for v, _ in numbers_said(text)] == pytest.approx([0.0186, 0.2, 1.2, 4e9, 1e-8, 0.04])
    assert missing("9.3 s", {"a": 9.26}) == []
    assert missing("9.3 s", {"a": 9.2}) == pytest.approx([9.3])


# ------------------------------------------------------------------------- few lines
@pytest.mark.parametrize("count", [1, 2, 3, 12, 13, 40])
def test_the_short_face_has_ten_lines_and_one_a_host_up_to_twelve_of_80_columns(count):
    hosts = [Host(f"host{i}", seconds_per_point=1e-9 * (1 + i / 7)) for i in range(count)]
    information = pool(
        [*hosts, Host("far", site="s")], {("local", "local"): Link(1e-7, 1e11)}, grid=4000
    )
    _, document = decided(information)
    lines = plan_text(document, "apples run").splitlines()
    assert len(document["chosen"]["hosts"]) >= count
    assert len(lines) <= 10 + min(len(document["chosen"]["hosts"]), 12)
    assert max(map(len, lines)) <= 80


def test_an_interval_that_is_empty_but_for_rounding_is_no_forecast_error(tmp_path):
    document = planned(tmp_path, "--json").document
    seconds = document["chosen"]["iteration_seconds"]
    for end, known in ((np.nextafter(seconds, 1e9), False), (1.01 * seconds, True)):
        document["chosen"]["iteration_interval"] = [seconds, float(end)]
        (first, *_) = plan_text(document, "").splitlines()
        assert (duration(float(end)) in first.replace(duration(seconds), "", 1)) is known


def test_the_long_face_keeps_to_80_columns_and_lists_every_assumption(tmp_path):
    hosts = '[[host]]\nname = "ada"\n[[host]]\nname = "bob"\ncpu = 0.3\n'
    lines = planned(tmp_path, "--explain", hosts=hosts).out.splitlines()
    document = planned(tmp_path, "--explain", "--json", hosts=hosts).document
    assert max(len(line) for line in lines if not line.startswith("run it:")) <= 80
    said = " ".join(" ".join(lines).split())
    assert document["assumed"]
    assert all(line in said for line in document["assumed"])
    assert len(lines) <= 40


def test_four_hosts_are_explained_on_40_lines():
    hosts = [Host(n, seconds_per_point=1e-9, free_memory="4 GB") for n in ("ada", "bob", "eve")]
    hosts.append(Host("far", site="s", seconds_per_point=1e-9, free_memory="4 GB"))
    links = symmetric({("local", "local"): Link(1e-5, 1e9), ("local", "s"): Link(0.02, 1e7)})
    coordinator, document = decided(pool(hosts, links))
    changes = thresholds(coordinator, minimum_execution_time)
    document = explained(document, coordinator.decision_log, changes, equal_strips_of(coordinator))
    assert len(explained_text(document, "apples run").splitlines()) <= 40


def test_wait_prints_the_record_of_a_demo_as_the_demo_did():
    document = json.loads((Path(__file__).parents[2] / "docs/gallery/demo.json").read_text())
    assert run_record_text(document, "apples jobs x") == demo_text(document)

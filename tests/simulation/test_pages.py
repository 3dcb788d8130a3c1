import json
import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from pages.reading import Page, numbers_of

from apples.scheduling import Easy, FirstComeFirstServed, SlowdownDriven
from apples.simulation import (
    CELLS,
    Cell,
    ChartSeries,
    GanttBar,
    SimulatedRun,
    SimulationConfig,
    WaitExplanation,
    WaitFit,
    baseline_of,
    comparison_document,
    comparison_page,
    heat_maps,
    is_drawn_singly,
    lay_out,
    lines,
    lublin_workload,
    mark_malleable,
    occupied_shares,
    over_time,
    paired_change,
    per_day,
    picture,
    rejections,
    simulate,
    story,
    sweep_page,
    sweep_table,
)
from apples.simulation import gantt_chart as gantt
from apples.ui import LIGHT, Scale, abbreviated

SETTING = SimulationConfig(16, 4)
LOG = "lublin:jobs=300,processors=64"
MACHINE = ["--nodes", "16", "--cores-per-node", "4"]


@pytest.fixture(scope="module")
def runs():
    workload = mark_malleable(lublin_workload(300, 64, 0), 1.0, 0)
    return [
        SimulatedRun(name, workload, simulate(workload, policy, SETTING, record=True), SETTING)
        for name, policy in (("easy", Easy()), ("sd", SlowdownDriven()))
    ]


def test_bars_never_overlap_and_hold_what_the_jobs_held(runs):
    for run in runs:
        bars = lay_out(run.schedule, 64)
        for bar in bars:
            assert bar.row >= 0
            assert bar.row + bar.rows <= 64
        for k, one in enumerate(bars):
            for other in bars[k + 1 :]:
                apart_in_time = one.end <= other.begin or other.end <= one.begin
                apart_in_rows = (
                    one.row + one.rows <= other.row or other.row + other.rows <= one.row
                )
                assert apart_in_time or apart_in_rows
        area = sum((bar.end - bar.begin) * bar.rows for bar in bars)
        assert area == pytest.approx(run.schedule.node_seconds * 4, rel=1e-9)


def test_utilisation_over_time_has_the_mean_of_the_run(runs):
    for run in runs:
        _, used, waiting = over_time(run, 100)
        span = np.nanmax(run.schedule.end) - run.workload.submit[0]
        assert used.mean() == pytest.approx(run.schedule.node_seconds / (16 * span))
        assert (waiting >= 0).all()


def test_every_malleable_start_stands_on_its_day(runs):
    _, _, started = per_day(runs[1])
    assert started.sum() == runs[1].schedule.guest.sum() > 0


def test_heat_maps_count_every_job_once(runs):
    for one in heat_maps(*runs):
        assert sum(map(sum, one["counts"])) == 300
    own = heat_maps(runs[0], runs[0])[0]
    assert {value for row in own["ratio"] for value in row if value is not None} == {1.0}


def test_a_change_that_is_the_same_everywhere_has_no_spread():
    base = np.full(100, 10.0)
    change = paired_change(base, base - 5)
    assert (change.mean, change.low, change.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert (change.count, change.over) == (20, "slices")


def page_of(runs, explained=""):
    return comparison_page(runs, comparison_document("few", runs, explained), {"log": "few"})


@given(st.data())
def test_shares_of_bands_hold_what_the_bars_hold(data):
    rows = data.draw(st.integers(1, 300))
    bars = []
    for k in range(data.draw(st.integers(1, 8))):
        begin, row = data.draw(st.floats(0, 90)), data.draw(st.integers(0, rows - 1))
        deep = data.draw(st.integers(1, rows - row))
        bars.append(GanttBar(k, begin, data.draw(st.floats(begin, 100)), row, deep))
    shares = occupied_shares(bars, [k % 3 for k in range(8)], rows, 0.0, 100.0)
    deep = np.diff([*range(0, rows, shares.rows), rows])
    area = (shares.share.sum(axis=2) * deep).sum(axis=1) * 100 / CELLS
    for kind in range(3):
        held = sum((bar.end - bar.begin) * bar.rows for bar in bars if bar.job % 3 == kind)
        assert area[kind] == pytest.approx(held, abs=1e-6)


def test_a_full_machine_is_dark_and_an_empty_one_has_no_marks():
    full = [GanttBar(0, 0.0, 50.0, 0, 1000)]
    shares = occupied_shares(full, [2], 1000, 0.0, 100.0)
    assert shares.rows == 19
    chart = gantt("g", "t", full, 1000, [2], Scale(100.0), (1.0, "s"), 0.0, shares)
    assert "shade box fill-2 shade-4" in chart
    assert chart.count("H500V") == len(shares.share[0])
    assert "shade-1" not in chart
    nothing = occupied_shares([], [], 1000, 0.0, 100.0)
    assert "shade" not in gantt("g", "t", [], 1000, [], Scale(100.0), (1.0, "s"), 0.0, nothing)


def test_above_500_processors_or_too_many_bars_for_the_page_bands_are_drawn():
    bars = [GanttBar(k, 0.0, 1.0, 0, 1) for k in range(1200)]
    assert is_drawn_singly(bars, 500, 4)
    assert not is_drawn_singly(bars, 501, 4)
    assert not is_drawn_singly(bars, 500, 5)


def test_both_axes_of_a_gantt_chart_have_values(runs):
    text = page_of(runs)
    for run in runs:
        chart = text[text.index(f"The machine under {run.name}</title>") :]
        chart = chart[: chart.index("</figure>")]
        for word in (">processors<", ">20<", ">40<", ">60<", ">1 d<", ">2 d<"):
            assert word in chart, word


def test_every_policy_of_a_comparison_has_its_chart_and_its_changes(runs):
    workload = runs[0].workload
    third = simulate(workload, FirstComeFirstServed(), SETTING, record=True)
    three = [*runs, SimulatedRun("fcfs", workload, third, SETTING)]
    text = page_of(three)
    for name in ("easy", "sd", "fcfs"):
        assert text.count(f"The machine under {name}</title>") == 1
    for name in ("sd", "fcfs"):
        assert f"Who gains, who loses: {name} against easy" in text
        assert f"{name}: mean slowdown" in text
    document = comparison_document("few", three)
    assert [list(one["changes"]) == [] for one in document["policies"]] == [True, False, False]


def test_every_number_of_a_page_is_in_its_document(runs):
    document = json.loads(json.dumps(comparison_document("few", runs)))
    numbers = Page(comparison_page(runs, document, {"log": "few"})).numbers
    assert len(numbers) > 100
    known = numbers_of(document)
    starts = sum(part["malleable_starts"] for part in document["over_time"][1]["parts"])
    assert {value for value, _ in numbers} <= known | {float(starts)}


def explained_by(factor):
    group = {
        "name": "all", "jobs": 100, "logged_wait": 1000.0, "simulated_wait": 1060.0 * factor - 60.0,
    }  # fmt: skip
    fit = WaitFit(group, {})
    return WaitExplanation("easy", {"easy": fit}, {"easy": fit}, 100, 0)


def test_a_page_opens_with_what_explains_the_waits_or_gives_no_verdict(runs):
    good, bad = (page_of(runs, explained_by(factor)) for factor in (1.1, 14.0))
    assert Page(good).verdicts[0] == "good"
    assert Page(bad).verdicts[0] == "bad"
    documents = [comparison_document("few", runs, explained_by(factor)) for factor in (1.1, 14.0)]
    assert [one["explained"] for one in documents] == [True, False]
    assert [one["withheld"] for one in documents] == [False, True]
    for document, text in zip(documents, (good, bad), strict=True):
        shown = unescape(text)
        assert f"<h1>{document['headline']}</h1>" in shown
        # The page explains the waits before it compares the policies.
        explanation, comparison = (shown.index(line) for line in document["findings"][:2])
        assert explanation < comparison
    verdict = documents[0]["findings"][1]
    assert verdict not in unescape(bad)


def test_where_nobody_knows_whether_the_waits_are_explained_no_verdict_is_given(runs):
    why = "few: does not tell how long its jobs waited"
    text = page_of(runs, why)
    assert Page(text).verdicts[0] == "bad"
    assert why in text
    document = comparison_document("few", runs, why)
    assert document["withheld"] is True
    assert f"<h1>{document['headline']}</h1>" in unescape(text)
    verdict = comparison_document("few", runs)["findings"][0]
    assert verdict not in unescape(text)
    assert verdict in unescape(page_of(runs))
    assert comparison_document("few", runs)["withheld"] is False  # a model's jobs are of no site


def test_names_that_differ_by_their_ends_differ_in_a_drawing(runs):
    easy, other = runs
    long = [replace(other, name=f"equipartition malleable=0.{k}") for k in (2, 7)]
    text = page_of([easy, *long])
    for k in (2, 7):
        assert f"equipart\u2026eable=0.{k}" in text


def test_fractions_of_malleable_jobs_are_a_curve_with_the_smallest_that_gains(tmp_path):
    answer = command(
        "apples", "report", LOG, *MACHINE, "--out", str(tmp_path / "p.html"), "--json",
        "--malleable-fraction", "0.2", "--malleable-fraction", "1"
    )  # fmt: skip
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    (entry,) = document["fractions"]
    assert [point["malleable"] for point in entry["mean_wait"]] == [0.2, 1.0]
    text = (tmp_path / "p.html").read_text()
    assert "fractions" in Page(text).sections
    assert entry["finding"] in document["findings"]


def sweep_rows(changes):
    """Rows of a sweep of one log in four slices: a baseline and sd by fraction of malleable jobs."""
    metrics = ("mean_wait", "mean_response", "mean_slowdown", "mean_bounded_slowdown")
    rows = []
    for policy, fraction, factors in (
        ("easy", -1.0, [1, 1, 1, 1]),
        *(("sd", *one) for one in changes),
    ):
        cell = Cell("x.swf", policy, (), 0, 64, malleable=fraction, parts=4)
        values = [100.0 * factor for factor in factors]
        figures = dict.fromkeys(metrics, float(np.mean(values)))
        rows.append(
            {
                "key": cell.key, "cell": {**cell.__dict__, "options": []}, **figures,
                "slices": dict.fromkeys(metrics, values), "makespan": 1e5, "utilisation": 0.7,
                "energy": None, "malleable_starts": 1, "mates": 1, "resizes": 1,
            }
        )  # fmt: skip
    return rows


def test_the_smallest_fraction_with_a_clear_gain_is_named():
    unsure, clear, most = [0.5, 1.4, 1.2, 0.8], [0.9, 0.88, 0.91, 0.89], [0.5, 0.52, 0.51, 0.49]
    rows = sweep_rows([(0.2, unsure), (0.4, clear), (1.0, most)])
    figures = sweep_table(rows, "easy")
    (entry,) = figures["fractions"]
    assert re.findall(r"(?<![.\d])\d+%", entry["finding"]) == ["40%", "100%"]
    clear_gain, most_gain = re.findall(r"(?<=\()-\d+\.\d%", entry["finding"])
    means = {point["malleable"]: point["change"] for point in entry["mean_slowdown"]}
    assert (clear_gain, most_gain) == (f"{means[0.4]:+.1%}", f"{means[1.0]:+.1%}")
    text = sweep_page(rows, figures, {"log": "x"})
    assert text.index(entry["finding"]) < text.index("<h2")
    assert text.count("% of the jobs malleable</text>") == len(figures["fractions"]) * 3
    none = sweep_table(sweep_rows([(0.2, unsure), (1.0, unsure)]), "easy")["fractions"][0]
    assert re.findall(r"(?<![.\d])\d+%", none["finding"]) == ["20%", "100%"]
    assert "-" not in none["finding"]  # a gain is a negative change; none is claimed


def test_the_baseline_of_a_sweep_is_the_one_asked_for_or_resizes_no_job():
    rows = sweep_rows([(0.2, [1, 1, 1, 1]), (1.0, [1, 1, 1, 1])])
    assert baseline_of(rows[::-1], None) == "easy"
    assert baseline_of(rows, "sd malleable=1") == "sd malleable=1"


def test_a_page_is_one_file_that_asks_nobody_for_anything(tmp_path):
    page = tmp_path / "page.html"
    answer = command(
        "apples", "report", LOG, *MACHINE, "--out", str(page), "--pictures", str(tmp_path / "svg")
    )
    assert answer.code == 0, answer.err
    text = page.read_text()
    assert not re.search(r'(src|href)\s*=\s*"?(https?:)?//', text)
    assert text.index('<ul class="findings">') < text.index("<h2")
    assert text.count("<h1>") == 1
    assert "<script" not in text
    assert answer.out.split()[0] == "sd"
    assert {"policies", "machine", "refused", "method"} <= {*Page(text).sections}
    pictures = sorted(path.name for path in (tmp_path / "svg").iterdir())
    assert "slowdown_per_day-sd.svg" in pictures
    assert "heat-slowdown-sd.svg" in pictures
    assert {"gantt-easy.svg", "gantt-sd.svg", "changes.svg"} <= set(pictures)
    for drawn in (tmp_path / "svg").iterdir():
        ElementTree.fromstring(drawn.read_text())  # noqa: S314 -- our own file
    assert (tmp_path / "page-sd.csv").exists()


def test_why_a_job_shrank_is_what_happened_at_that_instant(runs):
    run = runs[1]
    k = int(np.flatnonzero(run.schedule.mate)[0])
    told = story(run, k)
    times = [float(step.split()[0]) for step in told]
    assert times[0] == pytest.approx(run.workload.submit[k])
    assert times[1] == pytest.approx(run.schedule.start[k])
    assert times[-1] == pytest.approx(run.schedule.end[k])
    begun = run.schedule.start[run.schedule.guest]
    sizes = [re.search(r"(\d+) to (\d+)", step) for step in told[2:-1]]
    shrinks = [
        at for at, size in zip(times[2:-1], sizes, strict=True) if int(size[1]) > int(size[2])
    ]
    assert any(np.isclose(begun, at).any() for at in shrinks)


def test_refusals_are_counted_by_reason(runs):
    schedule = replace(
        runs[0].schedule, rejected={1: "job 1 is late", 2: "job 22 is late", 3: "no"}
    )
    refused = rejections([replace(runs[0], schedule=schedule)])
    assert [(one["reason"], one["jobs"]) for one in refused] == [("job N is late", 2), ("no", 1)]
    assert {one["policy"] for one in refused} == {"easy"}


def test_a_page_of_many_jobs_stays_small():
    """What is drawn of a machine is bounded, whatever the number of jobs."""
    setting = SimulationConfig(200, 4)
    workload = mark_malleable(lublin_workload(1200, 800, 0), 1.0, 0)
    made = [
        SimulatedRun(name, workload, simulate(workload, policy, setting, record=True), setting)
        for name, policy in (("easy", Easy()), ("sd", SlowdownDriven()))
    ]
    page = page_of(made)
    assert "shade" in page
    assert len(page.encode()) <= 300_000


def test_every_colour_of_the_page_is_of_the_palette(runs):
    document = comparison_document("few", runs)
    body = comparison_page(runs, document, {"log": "few"})
    assert not re.search(r"#[0-9a-fA-F]{6}\b", body[body.index("</style>") :])
    alone = picture(lines("one", "t", "x", "y", [ChartSeries("one", [0, 1], [2, float("nan")])]))
    used = {word.upper() for word in re.findall(r"#[0-9a-fA-F]{6}\b", alone)}
    assert used <= {colour.upper() for colour in LIGHT.values()}
    assert "var(--plan)" not in alone


def test_a_sweep_page_has_bars_over_options_and_curves_over_load(tmp_path):
    results = tmp_path / "r.jsonl"
    logs = [f"kale:jobs=200,load={load}" for load in (0.3, 0.6)]
    swept = command(
        "apples", "simulate", *logs, "--policy", "first_fit", "--policy", "equipartition",
              "--processors", "64", "--seeds", "3", "--workers", "1", "--grid", str(results)
    )  # fmt: skip
    assert swept.code == 0, swept.err
    page = tmp_path / "page.html"
    answer = command("apples", "report", str(results), "--out", str(page))
    assert answer.code == 0, answer.err
    text = page.read_text()
    assert {"changes", "load", "runs", "method"} <= {*Page(text).sections}
    assert "kale:jobs=200,load=0.3" in text


def test_numbers_on_axes():
    assert Scale(1.0).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Scale(0.1, -0.05).ticks() == pytest.approx([-0.05, 0.0, 0.05, 0.1])
    assert [abbreviated(x) for x in (0.123456, 40_000, 2e9)] == ["0.123", "40k", "2G"]
    assert 'class="curve curve-0 level"' in lines(
        "n", "t", "x", "y", [ChartSeries("one", [0, 1], [2, 3])]
    )

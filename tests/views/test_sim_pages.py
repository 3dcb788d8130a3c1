import base64
import gzip
import re
import shutil
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from commands import command
from views.colour import EYES, distance, lab

from apples.scheduling.policies import Easy, SlowdownDriven
from apples.simulation.config import SimulationConfig
from apples.simulation.gantt import GanttBar, lay_out
from apples.simulation.generators import lublin_workload
from apples.simulation.run import simulate
from apples.simulation.workload import mark_malleable
from apples.views.palette import LIGHT
from apples.views.simulation_charts import ChartSeries, gantt, lines, short, ticks
from apples.views.simulation_facts import (
    SimulatedRun,
    heat_maps,
    over_time,
    paired_change,
    per_day,
    rejections,
    story,
)
from apples.views.simulation_pages import comparison_page

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
        assert sum(map(sum, one.counts)) == 300
    own = heat_maps(runs[0], runs[0])[0]
    assert {value for row in own.ratio for value in row if value is not None} == {1.0}


def test_a_change_that_is_the_same_everywhere_has_no_spread():
    base = np.full(100, 10.0)
    change = paired_change(base, base - 5)
    assert (change.mean, change.low, change.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert (change.count, change.over) == (20, "slices")


def test_above_5000_marks_the_gantt_is_a_canvas_with_the_numbers_packed():
    bars = [GanttBar(k, float(k), k + 2.0, k % 7, 1) for k in range(6000)]
    chart = gantt("many", bars, 8, [k % 3 for k in range(6000)])
    assert "<canvas" in chart
    packed = re.search(r'gantt-data">([^<]+)<', chart).group(1)
    table = np.frombuffer(gzip.decompress(base64.b64decode(packed)), "<u2").reshape(5, -1)
    begins = np.cumsum(table[0]) / 65535 * 6001
    assert np.abs(begins - np.arange(6000)).max() < 0.2
    assert table[4].tolist() == [k % 3 for k in range(6000)]
    assert len(chart) < 60_000
    assert gantt("few", bars[:5000], 8, [0] * 6000).count("<rect") > 5000


def test_a_page_is_one_file_that_asks_nobody_for_anything(tmp_path):
    page = tmp_path / "page.html"
    answer = command(
        "apples", "report", LOG, *MACHINE, "--out", str(page), "--pictures", str(tmp_path / "svg")
    )
    assert answer.code == 0, answer.err
    text = page.read_text()
    assert not re.search(r'(src|href)\s*=\s*"?(https?:)?//', text)
    assert text.index("verdict") < text.index("<h2>Policies")
    assert text.count("<h1>") == 1
    assert text.count(" lost most of ") + text.count("nobody lost") == text.count(
        " gained most of "
    ) + text.count("nobody gained")
    assert "submitted, for" in text
    assert "inside the nodes of its mates" in text
    for word in (
        "copy as Markdown",
        "Rejected decisions",
        "best single job",
        "tie rule",
        "seed",
        "log sha256",
        "command",
        "worst single job",
        "Figure 7",
    ):
        assert word in text
    pictures = sorted(path.name for path in (tmp_path / "svg").iterdir())
    assert "slowdown_per_day.svg" in pictures
    assert "heat_slowdown.svg" in pictures
    for picture in (tmp_path / "svg").iterdir():
        ElementTree.fromstring(picture.read_text())  # noqa: S314 -- our own file
    assert (tmp_path / "page-sd.csv").exists()


def test_why_a_job_shrank_is_what_happened_at_that_instant(runs):
    run = runs[1]
    k = int(np.flatnonzero(run.schedule.mate)[0])
    told = story(run, k)
    assert "submitted" in told[0]
    assert "ended" in told[-1]
    assert any("shrunk" in step and "started inside mates' nodes" in step for step in told)


def test_refusals_are_counted_by_reason(runs):
    schedule = replace(
        runs[0].schedule, rejected={1: "job 1 is late", 2: "job 22 is late", 3: "no"}
    )
    refused = rejections([replace(runs[0], schedule=schedule)])
    assert refused == [("easy", "job N is late", 2), ("easy", "no", 1)]


def test_a_page_of_many_jobs_stays_small():
    """2 MB for 100,000 jobs are 20 bytes a job; the rest of the page is under 150 kB."""
    setting = SimulationConfig(64, 4)
    workload = mark_malleable(lublin_workload(8000, 256, 0), 1.0, 0)
    made = [
        SimulatedRun(name, workload, simulate(workload, policy, setting, record=True), setting)
        for name, policy in (("easy", Easy()), ("sd", SlowdownDriven()))
    ]
    page = comparison_page(made, {"log": "many"})
    assert "<canvas" in page
    assert len(page.encode()) <= 150_000 + 20 * 8000


def test_every_colour_of_the_page_is_of_the_palette(runs):
    page = comparison_page(runs, {"log": "few"})
    used = {word.upper() for word in re.findall(r"#[0-9a-fA-F]{6}\b", page)}
    assert used <= {colour.upper() for colour in LIGHT.values()}
    for one, other in combinations([LIGHT[name] for name in ("plan", "run", "wait")], 2):
        for eye in EYES:
            assert distance(lab(one, eye), lab(other, eye)) >= 15


def test_a_sweep_page_has_bars_over_options_and_curves_over_load(tmp_path):
    results = tmp_path / "r.jsonl"
    logs = [f"kale:jobs=200,load={load}" for load in (0.3, 0.6)]
    swept = command(
        "apples", "sweep", *logs, "--policy", "first_fit", "--policy", "equipartition",
              "--processors", "64", "--seeds", "3", "--workers", "1", "--out", str(results)
    )  # fmt: skip
    assert swept.code == 0, swept.err
    page = tmp_path / "page.html"
    answer = command("apples", "report", str(results), "--out", str(page))
    assert answer.code == 0, answer.err
    text = page.read_text()
    assert "Figures 7-10" in text
    assert "Figure 3" in text
    assert "equipartition on kale:jobs=200,load=0.3: mean slowdown" in text


@pytest.mark.skipif(
    not any(shutil.which(name) for name in ("rsvg-convert", "inkscape", "chromium")),
    reason="no converter from SVG to PNG is installed",
)
@pytest.mark.slow
def test_png_files_beside_the_svg_ones(tmp_path):
    """Slow: the converter is started for every chart."""
    answer = command(
        "apples", "report", LOG, *MACHINE, "--out", str(tmp_path / "p.html"),
              "--pictures", str(tmp_path / "p"), "--png"
    )  # fmt: skip
    assert answer.code == 0, answer.err
    for path in (tmp_path / "p").glob("*.svg"):
        assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"


def test_numbers_on_axes():
    assert ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(3, 3) == [3]
    assert [short(x) for x in (0.123456, 40_000, 2e9)] == ["0.123", "40k", "2G"]
    assert "polyline" in lines("t", "x", "y", [ChartSeries("one", [0, 1], [2, float("nan")])])

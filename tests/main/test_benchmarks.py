"""The command ``python -m benchmarks``, and the evidence page that is made from its results."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import evidence
from benchmarks.common import Row, Settings, Skipped

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "limits", "verdict"),
    [
        (1.0, {}, ""),
        (1.0, {"at_most": 1.0}, "met"),
        (1.1, {"at_most": 1.0}, "missed"),
        (0.9, {"at_least": 1.0}, "missed"),
        (1.5, {"at_least": 1.0, "at_most": 2.0}, "met"),
        (float("nan"), {"at_most": 1.0}, "missed"),
    ],
)
def test_a_row_meets_its_bar_or_misses_it(value, limits, verdict):
    assert Row("name", "measures", value, **limits).verdict == verdict


def test_each_benchmark_has_parts_with_a_summary():
    for name in command.NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        assert module.PARTS, name
        assert all(part.__doc__ for part in module.PARTS.values()), name


@pytest.fixture
def parts(monkeypatch):
    """A benchmark with four parts: a met bar, a missed one, a skip after a row, and a failure."""
    from benchmarks import start_up as module

    def met(settings):
        settings.raw["numbers"] = [1, 2]
        yield Row("a", "first", 1.0, at_most=2)

    def missed(_):
        yield Row("b", "second", 3.0, at_most=2)

    def skipped(_):
        yield Row("c", "third", 4.0)
        raise Skipped("no data: get it from the archive")

    def failed(_):
        yield Row("d", "fourth", 5.0)
        raise ValueError("broken")

    monkeypatch.setattr(module, "PARTS", {f.__name__: f for f in (failed, missed, skipped, met)})
    return ["start_up"]


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    return command.main()


def test_a_failure_or_a_missed_bar_does_not_end_the_run(parts, monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, *parts, "--json", str(tmp_path)) == 1
    lines = capsys.readouterr().out.splitlines()
    verdicts = {(line.split()[0], line.split()[-1]) for line in lines[1:]}
    assert {(f"start_up.{name}:", name) for name in ("met", "missed")} <= verdicts
    assert {(f"start_up.{name}", name) for name in ("skipped", "failed")} <= verdicts
    assert any("failed: ValueError: broken" in line for line in lines)
    assert any("no data: get it from the archive" in line for line in lines)
    written = json.loads((tmp_path / "start_up.met.json").read_text())
    assert written["command"] == "python -m benchmarks start_up.met"
    assert written["raw"] == {"numbers": [1, 2]}
    assert written["machine"]["cpus"] >= 1
    assert written["rows"][0]["value"] == 1.0
    assert (
        json.loads((tmp_path / "start_up.failed.json").read_text())["failed"]
        == "ValueError: broken"
    )


@pytest.mark.usefixtures("parts")
def test_a_missed_bar_alone_is_no_failure(monkeypatch):
    assert run(monkeypatch, "start_up.missed", "start_up.skipped") == 0


def test_a_missing_data_file_is_named_with_its_source(tmp_path):
    with pytest.raises(
        Skipped, match=r"RICC-2010-2.swf.gz is not .*apples simulate --fetch RICC-2010-2"
    ):
        Settings(data=tmp_path).file("swf/RICC-2010-2.swf.gz")


def test_unknown_names_are_refused_with_the_known_ones():
    for name in ("figure66", "resize.nonesuch"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", name],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert done.returncode == 1
        assert name in done.stderr
        assert "growth" in done.stderr or "planner" in done.stderr


def test_the_evidence_page_has_the_tables_of_the_results():
    page = evidence.PAGE.read_text("utf-8")
    assert evidence.written(page) == page, "run `make evidence`"


def test_a_changed_result_changes_the_evidence_page(monkeypatch, tmp_path):
    for path in evidence.RESULTS.glob("figure*.json"):
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace('"value": 78', '"value": 12.5'))
    monkeypatch.setattr(evidence, "RESULTS", tmp_path)
    page = evidence.written("<!-- results: figure6 -->\n<!-- end -->\n")
    assert "12.5 % | >= 25: **missed** | 1 |" in page

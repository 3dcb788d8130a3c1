"""Results as Python shows them: a line, the terminal's text, a notebook's table and chart, a data frame."""

import base64
import dataclasses
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from commands import EXAMPLE, HOSTS, command, files

import apples
from apples import PlanSpec, RunSpec, UsageError, plan, run
from apples.agent import explained_text, launch_plan, plan_html, plan_text
from apples.jobs import run_record, run_text

FILES = [EXAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
SETTINGS = {"grid": 200, "iterations": 20}
SPEC = PlanSpec(*FILES, settings=SETTINGS, weather="static")
LONGEST = 200


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        spec = RunSpec(*FILES, settings=SETTINGS, weather="static", blueprint="blocked")
        result = run(spec)
        return result, run_record(result.record)


class Page(HTMLParser):
    """Tags that are open, cells of tables and images of a piece of HTML."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.images, self.words = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))
        elif tag != "br":
            self.open.append(tag)
            self.cells += [""] if tag in {"td", "th"} else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def picture_of(page):
    """Return the words and the size of the one image of a page."""
    (image,) = page.images
    kind, _, content = image["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert image["alt"]
    drawn = ET.fromstring(base64.b64decode(content))  # noqa: S314 - ours
    return " ".join(
        "".join(part.itertext()) for part in drawn.iter() if part.tag.endswith("}text")
    )


def reachable(root):
    """Return every object that the fields of a result lead to."""
    found, waiting = {}, [root]
    while waiting:
        value = waiting.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            waiting += [getattr(value, known.name) for known in dataclasses.fields(value)]
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return list(found.values())


@pytest.mark.mpi
def test_every_public_result_is_one_short_line(ran):
    exported = tuple(
        known for name in apples.__all__ if isinstance(known := getattr(apples, name), type)
    )
    decision = plan(SPEC, explain=True)
    launch = launch_plan(decision.estimate.schedule, decision.information)
    seen = set()
    for value in [each for root in (*ran, decision, launch) for each in reachable(root)]:
        if isinstance(value, exported) and not isinstance(value, PlanSpec):
            seen.add(type(value).__name__)
            line = repr(value)
            assert len(line) <= LONGEST, line
            assert "\n" not in line
    assert seen >= {
        *("PlanResult", "RunResult", "Estimate", "Schedule", "DecisionLog", "InformationPool"),
        *("HostList", "Host", "Network", "Outcome", "HostTimes", "HostEstimate", "Allocation"),
        "LaunchPlan",
    }


def test_the_line_of_a_plan_of_many_hosts_with_long_names_is_cut(tmp_path):
    names = [f"{'n' * 55}{k}" for k in range(9)]
    hosts = "".join(f'[[host]]\nname = "{name}"\nseconds_per_point = 1e-8\n' for name in names)
    hosts += (
        f'[[link]]\nbetween = ["{names[0]}", "{names[1]}"]\nlatency = 1e-6\nbandwidth = 1e10\n'
    )
    given = files(tmp_path, hosts=hosts)[1::2]
    result = plan(PlanSpec(*given, weather="static", blueprint="all_resources"))
    assert len(result.rows) == len(names)
    for value in (result, result.estimate, result.estimate.schedule, result.decisions):
        assert len(repr(value)) <= LONGEST
        assert repr(value).endswith("..>")


def test_a_plan_is_printed_as_the_command_prints_it(tmp_path):
    given = files(tmp_path)
    printed = command("apples", "plan", *given, "--weather", "static")
    result = plan(PlanSpec(*given[1::2], weather="static"))
    assert str(result) == printed.out.rstrip("\n")
    assert str(plan(SPEC, explain=True)) == explained_text(
        plan(SPEC, explain=True).document(), SPEC.command
    )


def test_the_command_of_a_plan_has_its_options():
    spec = dataclasses.replace(SPEC, blueprint="blocked", fresh=True, user=None)
    assert spec.command == (
        f"apples run --hosts {FILES[0]} --template {FILES[1]} --blueprint blocked "
        "--weather static --set grid=200 --set iterations=20 --fresh"
    )
    run_spec = RunSpec(actuator="ssh", verify=False, warm=("ada", "bob"), calibrate=False)
    assert run_spec.command == (
        "apples run --actuator ssh --verify none --warm ada,bob --no-calibrate"
    )
    own = dataclasses.replace(SPEC, filters=(lambda *_: None,))
    assert own.command == "apples.run(spec)"
    assert plan(own).command == "apples.run(spec)"
    assert str(plan(own)).endswith("run it:  apples.run(spec)")


def test_a_notebook_shows_a_plan_as_table_and_chart():
    result = plan(dataclasses.replace(SPEC, blueprint="blocked"))
    page = Page(result._repr_html_())
    document = result.document()
    for host, rows in zip(document["chosen"]["hosts"], document["chosen"]["rows"], strict=True):
        at = page.cells.index(host)
        assert page.cells[at + 1] == str(rows)
        assert f"{host} {rows}" in picture_of(page)
    assert page.words[0] == plan_text(document, "").splitlines()[0]


def test_a_notebook_shows_why_there_is_no_plan(tmp_path):
    given = files(tmp_path, hosts=HOSTS.replace("4 GB", "1 MB"))[1::2]
    result = plan(PlanSpec(*given, weather="static"))
    page = Page(result._repr_html_())
    assert "No plan" in page.words[0]
    assert not page.images
    assert repr(result).endswith("no plan>")
    assert str(result).startswith("No plan")


def test_names_are_escaped_in_a_notebook():
    document = plan(SPEC).document()
    document["chosen"]["strips"][0]["host"] = '<script>"x"&</script>'
    page = Page(plan_html(document))
    assert '<script>"x"&</script>' in page.cells


@pytest.mark.mpi
def test_a_run_is_printed_and_shown_as_its_document(ran):
    result, _ = ran
    document = result.document()
    assert str(result) == run_text(document, result.plan.command)
    page = Page(result._repr_html_())
    for host in document["execution"]["hosts"]:
        assert page.cells[page.cells.index(host["host"]) + 1] == str(host["rows"])
        assert host["host"] in picture_of(page)


def test_a_frame_needs_pandas_and_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError) as refused:
        plan(SPEC).to_frame()
    assert (refused.value.code, refused.value.fields["packages"]) == (
        "package-missing",
        ["pandas"],
    )
    assert "pip install pandas" in str(refused.value)


def test_the_frame_of_a_plan_has_a_row_a_host():
    pytest.importorskip("pandas")
    result = plan(dataclasses.replace(SPEC, blueprint="blocked"))
    frame = result.to_frame()
    assert dict(frame["rows"]) == result.rows
    assert frame["seconds"].max() == pytest.approx(result.estimate.iteration_seconds)


@pytest.mark.mpi
def test_the_frame_of_a_run_has_a_row_a_host(ran):
    pytest.importorskip("pandas")
    result, _ = ran
    frame = result.to_frame()
    assert dict(frame["rows"]) == result.rows
    hosts = result.document()["execution"]["hosts"]
    assert list(frame["compute_seconds"]) == [host["compute_seconds"] for host in hosts]

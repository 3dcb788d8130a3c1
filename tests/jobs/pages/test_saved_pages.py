"""The saved pages: one file that needs nothing else, and no number of their own."""

import re
from pathlib import Path

import pytest
from pages.documents import demo, measured, plan, refused, run, strip
from pages.reading import Page, leaves, numbers_of, replaced, strings_of
from pages.timelines import moved

import apples
from apples import compare
from apples.jobs import METHODS, compared_page, demo_page, run_page, timeline_document
from apples.ui import made_by

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "</title></desc></svg></style><svg onload=alert(1)>",
    "{{ 71 * 73 }}{% raw %}{0.__class__}%s&lt;",
    "javascript:alert(1)",
    "]]><!-- \x00\ud800\u202e",
)


def full_run(**more):
    return run(("ada", "bob", "eve"), made_by=made_by("apples run"), **more)


def runs_without_execution():
    dry = {**run(), "execution": None, "command": {"argv": ["mpiexec", "-n", "2"]}}
    return [refused(), dry]


def over_time():
    document = run(("ada", "bob"))
    return document | {"timeline": timeline_document(document["plan"], moved())}


def sampled(**found):
    how = {
        "asked": "auto",
        "how": "sample",
        "iterations": 27,
        "predicted_seconds": 4.8,
        "seconds": 5.1,
    }
    how |= {
        "reason": "the whole run would take about 105 s",
        "sampled_on": "hosts",
        "differs_at": None,
    }
    return run(verification=how | found)


def counted():
    """A run of three hosts and four ranks that counted what they sent."""
    ranks = [("ada", 0), ("ada", 1), ("bob", 2), ("eve", 3)]
    document = run(("ada", "bob", "eve"))
    document["execution"] |= {
        "messages": {
            "source": "counted", "hosts": ["ada", "bob", "eve"], "missed": 17,
            "bytes": [[64_000, 800, 0], [100, 0, 3], [0, 5, 0]],
            "messages": [[9, 2, 0], [1, 0, 3], [0, 4, 0]],
            "ranks": [{"host": host, "world": 0, "rank": rank} for host, rank in ranks],
            "rank_bytes": [[0, 32_000, 800, 0], [32_000, 0, 0, 0], [100, 0, 0, 3], [0, 0, 5, 0]],
            "rank_messages": [[0, 4, 2, 0], [5, 0, 0, 0], [1, 0, 0, 3], [0, 0, 4, 0]],
        }
    }  # fmt: skip
    return document


def going():
    """A run that has done 60 of its 227 iterations."""
    document = run(("ada", "bob"))
    whole = document["execution"]
    part = whole["predicted_iteration_seconds"] * 60
    document["execution"] = whole | {
        "iterations": 60, "predicted_seconds": part, "interval": [part, part], "measured_seconds": 0.9,
    }  # fmt: skip
    return document | {"state": "running", "reason": ""}


def test_a_run_that_goes_on_shows_the_whole_promise_and_its_pace():
    document = going()
    chosen, total = document["plan"]["chosen"], document["plan"]["application"]["iterations"]
    page = run_page(document)
    shown = {value for value, _ in Page(page).numbers}
    assert {*chosen["interval"], chosen["execution_seconds"], 0.9 / 60 * total} <= shown
    assert 'class="band"' in page


def compared(hosts=("ada", "bob")):
    """A comparison of two plans and a run: one plan on all hosts, one on the first of them, one of none."""
    whole = plan([strip(host, 40) for host in hosts])
    alone = plan([strip(hosts[0], 40 * len(hosts))], blueprint="single_host")
    none = whole | {"chosen": None, "next_best": None}
    return compare(calm=whole, storm=alone, none=none, done=run(hosts)).document()


PAGES = {
    "counted messages": (run_page, counted()),
    "a run over time": (run_page, over_time()),
    "a sample": (run_page, sampled()),
    "a wrong sample": (
        run_page,
        sampled(differs_at={"row": 17, "host": "bob", "rank": 1}) | {"verified": False},
    ),
    "demo": (demo_page, demo()),
    "run": (run_page, full_run()),
    "a refused method": (demo_page, demo(instead={"compile_time": refused("compile_time")})),
    "nothing ran": (demo_page, demo(instead={name: refused(name) for name in METHODS})),
    "no runs": (demo_page, demo(repeat=0)),
    "one host": (demo_page, demo(hosts=("ada",))),
    "a run on one host": (run_page, run(("ada",))),
    "a refused run": (run_page, runs_without_execution()[0]),
    "a dry run": (run_page, runs_without_execution()[1]),
    "many repetitions": (demo_page, demo(100, ("ada", "bob", "eve", "fay"))),
    "many hosts": (run_page, run([f"host-{k}" for k in range(1000)])),
    "compared plans": (compared_page, compared()),
    "compared plans of many hosts": (compared_page, compared([f"host-{k}" for k in range(1000)])),
}
pages = pytest.mark.parametrize(("page", "document"), PAGES.values(), ids=PAGES)


@pages
def test_a_page_loads_nothing_and_runs_nothing(page, document):
    text = page(document)
    assert not re.search(r"(?i)<script|@import|url\((?!#)|https?://(?!www\.w3\.org)", text)
    for tag, attributes in Page(text).tags:
        assert tag not in {"script", "iframe", "object", "embed", "base", "form", "img"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "srcset", "action", "xlink:href"}:
                assert value == "data:," or value.startswith("#")


@pages
def test_a_page_is_small(page, document):
    assert len(page(document).encode()) <= 300_000


@pages
def test_every_number_of_a_page_is_in_its_document(page, document):
    known = numbers_of(document)
    shown = Page(page(document)).numbers
    assert shown or not known
    for value, text in shown:
        assert value in known, text


@pages
def test_every_digit_of_a_page_belongs_to_a_number_or_to_a_text_of_its_document(page, document):
    words = " ".join(Page(page(document)).words)
    for known in strings_of(document):
        words = words.replace(known, "")
    assert re.findall(r"[^\s]*\d[^\s]*", words) == []


@pages
def test_a_number_reads_as_its_value_to_the_digits_shown(page, document):
    units = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "%": 0.01, "B": 1, "kB": 1e3}
    units |= {"MB": 1e6, "GB": 1e9, "TB": 1e12, "": 1}
    for value, text in Page(page(document)).numbers:
        figure, _, unit = text.replace("\u2212", "-").partition(" ")
        last = 10.0 ** -len(figure.partition(".")[2])
        assert abs(float(figure) * units[unit] - value) <= 0.501 * last * units[unit], text


@pages
def test_a_page_can_be_read_without_seeing_it(page, document):
    read = Page(page(document))
    names = [tag for tag, _ in read.tags]
    assert names.count("h1") == names.count("main") == 1
    assert ("html", {"lang": "en"}) in read.tags
    identities = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    for tag, attributes in read.tags:
        if tag == "svg" and attributes.get("role") == "img":
            assert set(attributes["aria-labelledby"].split()) <= set(identities)
        for name in ("aria-labelledby", "href"):
            if name in attributes and attributes[name] != "data:,":
                assert set(attributes[name].replace("#", "").split()) <= set(identities)
    assert names.count("figure") == names.count("figcaption")
    landmarks = re.findall(r"<h2 id=[^>]+>([^<]+)<", page(document))
    landmarks += [own["aria-label"] for _, own in read.tags if own.get("role") == "region"]
    assert len(landmarks) == len(set(landmarks))


@pytest.mark.more
@pytest.mark.parametrize(
    ("page", "document"),
    [(demo_page, demo(1, ("ada",))), (run_page, full_run())],
    ids=["demo", "run"],
)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_text_of_a_document_becomes_markup(page, document, payload):
    shape = Page(page(document)).shape() | optional_shape()
    for path in fields(document):
        text = page(replaced(document, path, payload))
        assert Page(text).shape() <= shape, path
        assert "5183" not in text


def test_no_text_in_all_places_at_once_becomes_markup():
    document = full_run(rejection="x")
    shape = Page(run_page(document)).shape()
    for path, value in leaves(document):
        if isinstance(value, str):
            document = replaced(document, path, PAYLOADS[1])
    assert Page(run_page(document)).shape() <= shape


def test_the_verdict_of_a_demo_is_bad_where_it_is_slower():
    faster, slower = demo(), demo(instead={"blocked": run(blueprint="blocked", seconds=0.001)})
    assert Page(demo_page(faster)).verdicts[0] == "good"
    assert Page(demo_page(slower)).verdicts[0] == "bad"


def test_a_page_with_a_wrong_result_is_marked_bad_and_one_without_results_is_not_good():
    wrong = demo(instead={"blocked": run(blueprint="blocked") | {"verified": False}})
    assert Page(demo_page(demo())).verdicts[1] == "good"
    assert Page(demo_page(wrong)).verdicts[1] == "bad"
    assert Page(demo_page(demo(repeat=0))).verdicts[1] == "watch"
    assert "bad" in Page(run_page(run() | {"verified": False})).verdicts
    assert "bad" not in Page(run_page(run())).verdicts


def test_notes_are_only_of_what_moved_the_time():
    quiet = run(("ada",))
    quiet["execution"]["startup_seconds"] = 0.001
    quiet["execution"]["hosts"] = [measured("ada", 1000, compute=0.0113, communicate=0.00021)]
    assert notes_of(quiet) == []
    quiet["execution"]["startup_seconds"] = 1.0
    (start,) = notes_of(quiet)
    assert ">1.00 s<" in start
    late = measured("ada", 1000, compute=0.0139, communicate=0.00021)
    quiet["execution"]["hosts"] = [late | {"cpu_got": 0.3}]
    assert any(one.startswith("ada ") and '"0.3"' in one for one in notes_of(quiet))


def notes_of(document):
    """Return the notes of a run's page, as HTML."""
    found = re.search(r'<ol class="notes">(.*?)</ol>', run_page(document), re.DOTALL)
    return re.findall(r"<li>(.*?)</li>", found[1], re.DOTALL) if found else []


def test_waiting_has_its_own_column_where_the_program_tells_it():
    told = full_run()
    for host in told["execution"]["hosts"]:
        host["wait_per_iteration"] = 0.00083
    assert "830 us" in run_page(told)
    assert ">wait</th>" in run_page(told)
    assert "830 us" not in run_page(full_run())
    assert ">halo and wait</th>" in run_page(full_run())


def every_host(document):
    executions = [one["execution"] for one in document.get("runs", [document])]
    return [(one, host) for one in executions if one for host in one["hosts"]]


def fields(document):
    """Return one path for each text field; of a list's elements the last one's."""
    found = {}
    for path, value in leaves(document):
        if isinstance(value, str):
            found[tuple(part for part in path if isinstance(part, str))] = path
    return found.values()


def optional_shape():
    """Return what a page may hold that one document did not need."""
    document = demo(repeat=1, instead={"compile_time": refused("compile_time")})
    return Page(demo_page(document)).shape() | {("td", "colspan")}


TEMPLATES = sorted(Path(apples.__file__).parent.glob("*/templates/*.html.j2"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_writes_an_attribute_as_a_value(template):
    # Values are escaped, so a quote that is meant for the page's own markup comes out as &#34;.
    values = re.findall(r"\{\{.*?\}\}", template.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not [value for value in values if re.search(r"'\s*[\w-]+=\"", value)]

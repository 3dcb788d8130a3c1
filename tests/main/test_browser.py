"""The pages in a real browser that has no network."""

import pytest
from jobs.pages.test_message_matrix import document as many_messages
from jobs.pages.test_saved_pages import compared
from pages.browser import Browser, chromium
from pages.documents import demo, run
from pages.timelines import moved
from simulation.test_pages import sweep_rows

from apples.jobs import compared_page, demo_page, run_page
from apples.scheduling import Easy, SlowdownDriven
from apples.simulation import (
    SimulatedRun,
    SimulationConfig,
    comparison_document,
    comparison_page,
    lublin_workload,
    mark_malleable,
    simulate,
    sweep_page,
    sweep_table,
)
from apples.ui import made_by
from apples.ui import page as shell_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no chromium on this machine"),
]

FOCUS = """(() => { const one = document.activeElement, style = getComputedStyle(one);
  return [one.tagName, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]; })()"""
HOSTS = ("ada", "bob", "a-host-with-a-name-as-long-as-some-sites-like-them.cluster.example.org")
PAYLOAD = '"><img src="http://127.0.0.1:9/x" onerror="document.title=1"><script>document.title=1</script>'


def hostile():
    document = run(HOSTS, made_by=made_by(PAYLOAD))
    document["plan"]["left_out"][0]["reason"] = PAYLOAD
    document["plan"]["application"]["name"] = PAYLOAD
    document["plan"]["chosen"]["strips"][0]["cpu_method"] = PAYLOAD
    document["execution"]["hosts"][0]["host"] = PAYLOAD
    return document


def comparison():
    workload = mark_malleable(lublin_workload(150, 64, 0), 1.0, 0)
    setting = SimulationConfig(16, 4)
    made = [
        SimulatedRun(name, workload, simulate(workload, policy, setting, record=True), setting)
        for name, policy in (
            ("easy", Easy()),
            ("a-policy-of-mine.py:" + HOSTS[2], SlowdownDriven()),
        )
    ]
    return comparison_page(made, comparison_document(HOSTS[2], made), {"log": HOSTS[2]})


def sweep():
    clear = [(0.2, [0.5, 1.4, 1.2, 0.8]), (1.0, [0.5, 0.52, 0.51, 0.49])]
    rows = sweep_rows(clear)
    return sweep_page(rows, sweep_table(rows, "easy"), {"log": HOSTS[2]})


PAGES = {
    "demo": lambda: demo_page(demo(5, HOSTS)),
    "demo-once": lambda: demo_page(demo(1, HOSTS)),
    "run": lambda: run_page(run(HOSTS, made_by=made_by("apples run"))),
    "timeline": lambda: run_page(run(("ada", "bob")), moved()),
    "messages": lambda: run_page(many_messages(64, 256)),
    "comparison": comparison,
    "compared plans": lambda: compared_page(compared(HOSTS)),
    "sweep": sweep,
    "hostile": lambda: run_page(hostile()),
}
CHARTLESS = {"compared plans"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(params=PAGES, scope="module")
def page(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(PAGES[request.param](), encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_opens_from_a_disk_without_a_request_or_a_complaint(browser, page, dark):
    browser.open(page, dark=dark)
    assert [url for url in browser.requests if url not in {page.as_uri(), "data:,"}] == []
    assert browser.complaints == []
    assert browser.evaluate("document.title").startswith("apples")
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(27, 27, 27)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize("width", [320, 1000])
def test_a_page_fits_into_the_width_with_its_tables_open(browser, page, width):
    browser.open(page, width=width)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('table').length") > 0


def test_page_of_a_pipeline_scrolls_its_long_lines(browser, tmp_path):
    summary = {"application": "one", "state": "finished", "started": 1.8e9, "reason": ""}
    model = {
        "kind": "pipeline",
        "summary": summary,
        "over": True,
        "took": "1 s",
        "lines": ["use " * 60],
    }
    path = tmp_path / "page.html"
    path.write_text(shell_page("application.html.j2", model), encoding="utf-8")
    browser.open(path, width=320)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 320


SMALLEST = """Math.min(...[...document.querySelectorAll('svg text, svg tspan')]
  .map(one => parseFloat(getComputedStyle(one).fontSize)))"""


@pytest.mark.parametrize("page", [name for name in PAGES if name not in CHARTLESS], indirect=True)
def test_no_letter_of_a_chart_is_below_11_pixels(browser, page):
    browser.open(page, width=320)
    assert browser.evaluate("document.querySelectorAll('svg').length") > 3
    assert browser.evaluate(SMALLEST) >= 11


def test_everything_that_takes_the_focus_shows_it(browser, page):
    browser.open(page)
    stops = browser.evaluate(
        "document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length"
    )
    tags = []
    for _ in range(3):
        browser.press("Tab")
        tag, visible = browser.evaluate(FOCUS)
        tags.append(tag)
        assert visible, tag
    assert tags[0] == "A"
    assert stops >= 3


def test_a_request_or_a_script_would_have_been_noticed(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text('<img src="http://127.0.0.1:9/x"><script>throw 1</script>', encoding="utf-8")
    browser.open(path)
    assert "http://127.0.0.1:9/x" in browser.requests
    assert browser.complaints

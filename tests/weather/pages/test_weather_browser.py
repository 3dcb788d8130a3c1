"""The pages of a weather service in a real browser: signed in by a form, nothing foreign asked for."""

import importlib.util
from importlib import resources

import pytest
from main.test_web_browser import SKIPPED, UNNAMED, axe
from pages.browser import Browser, chromium
from pages.weather_site import wave, weather_site

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no chromium on this machine"),
]
LONG = "availableCpu/a-host-with-a-name-as-long-as-some-sites-like-them.cluster.example.org"
SIZES = ((320, False), (320, True), (1280, False), (1280, True))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    with weather_site(tmp_path_factory.mktemp("nws")) as site:
        with site.client() as client:
            client.store(wave("availableCpu/ada", 300))
            client.store(wave(LONG, 60, ago=4000.0))
            client.store([one for k in range(120) for one in wave(f"load/host{k:03}", 3)])
        site.serving.handler.failing["states"] = f"states are not saved: /{'x' * 100}"
        yield site


PATHS = ("/", "/?words=availableCpu&order=age", "/?words=nobody", f"/series?name={LONG}")
PATHS += ("/series?name=availableCpu/ada&back=1", "/series?name=load/host001", "/series?name=x")


def sign_in(weather, browser):
    """Type the operator's token into the form, and go where it leads."""
    browser.ask("Network.clearBrowserCookies")
    browser.go(weather.url + "/")
    box = 'document.querySelector("input[name=key]")'
    browser.evaluate(f"{box}.value = '{weather.serving.token}'; {box}.form.submit()")
    browser.arrive()  # the page with the cookie
    browser.arrive()  # the one that it leads to
    assert browser.evaluate("document.querySelector('h1').textContent") == "122 series"


def test_a_form_leads_to_pages_that_ask_nobody_else_run_nothing_and_fit(weather, browser):
    sign_in(weather, browser)
    for path in PATHS:
        for width, dark in ((320, True), (1280, False)):
            browser.go(weather.url + path, width=width, dark=dark)
            own = [url for url in browser.requests if url.startswith((weather.url, "data:"))]
            assert own == browser.requests
            assert [one for one in browser.complaints if "404" not in str(one)] == [], path
            browser.evaluate(
                "document.querySelectorAll('details').forEach(one => one.open = true)"
            )
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, path
            assert browser.evaluate("document.scripts.length") == 0
            assert browser.evaluate(UNNAMED) == [], path
            assert browser.evaluate(SKIPPED) == [1, []], path


@pytest.mark.skipif(
    importlib.util.find_spec("axe_playwright_python") is None,
    reason="axe-playwright-python is not installed",
)
def test_axe_finds_nothing_on_any_page_in_either_scheme_at_either_width(weather, browser):
    rules = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    browser.ask("Network.clearBrowserCookies")
    for paths in (("/",), PATHS):  # before and after a browser is admitted
        for path in paths:
            for width, dark in SIZES:
                browser.go(weather.url + path, width=width, dark=dark)
                browser.evaluate(
                    "document.querySelectorAll('details').forEach(one => one.open = true)"
                )
                assert axe(browser, rules) == [], (path, width, dark)
        sign_in(weather, browser)


def test_a_list_is_searched_and_a_series_opened_by_clicking(weather, browser):
    sign_in(weather, browser)
    browser.evaluate("document.querySelector('input[name=words]').value = 'ada'")
    browser.click("form[role=search] button")
    browser.arrive()
    assert browser.evaluate("document.querySelectorAll('tbody tr').length") == 1
    browser.click("tbody a")
    browser.arrive()
    assert browser.evaluate("document.querySelector('h1').textContent") == "availableCpu/ada"

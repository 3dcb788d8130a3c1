"""Forms: a file beside its fields, saved whole or not at all; a plan, and the job that it becomes."""

import html
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from commands import EXAMPLE, command
from jobs.pages.test_pages import is_tame
from weather.pages.test_host_page import remembered

from apples import compare
from apples.applications import MAX_FILE_BYTES, DocumentFolder, new, new_document
from apples.jobs import asked, choices, planned, store
from apples.resources import read_host_list
from nws import Forecast, Weather

HOSTS = '# ours\n[[host]]\nname = "ada"  # fast\nslots = 2\ncpu = 0.5\n'
HIDDEN = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)">')
BOX = re.compile(r'<input name="(f:[^"]+)" value="([^"]*)"')
TEXT = re.compile(r'<textarea name="text"[^>]*>\n(.*?)</textarea>', re.DOTALL)


@pytest.fixture
def hosts(own_state):
    path = own_state / "hosts.toml"
    path.write_text(HOSTS)
    return path


def form_of(text):
    """Return the fields of the form of a page, as a browser would send them."""
    fields = {
        name: html.unescape(value) for name, value in (*HIDDEN.findall(text), *BOX.findall(text))
    }
    return fields | {"text": html.unescape(TEXT.search(text)[1]).replace("\n", "\r\n")}


def send(site, visitor, page, path="/file", **changes):
    fields = form_of(visitor.get(site.url + page).text) | changes
    return visitor.post(site.url + path, data=fields, allow_redirects=False)


PAGE = "/file?name=hosts.toml"


def test_a_file_that_was_only_looked_at_is_saved_as_it_was(site, visitor, hosts):
    answer = send(site, visitor, PAGE, do="save")
    assert answer.status_code == 303
    assert hosts.read_text() == HOSTS


@pytest.mark.parametrize("kind", ["strip", "pipeline", "sweep", "master-worker"])
def test_every_file_of_a_scaffold_has_a_form_and_is_saved_as_it_was(
    site, visitor, own_state, kind
):
    new("made", own_state, kind=kind)
    files = sorted((own_state / "made").glob("*.toml"))
    assert len(files) > 1
    for path in files:
        text = path.read_text()
        answer = send(site, visitor, f"/file?name=made/{path.name}", do="save")
        assert (answer.status_code, path.read_text()) == (303, text), path


def test_a_box_is_put_into_the_text_and_saved_with_every_comment(site, visitor, hosts):
    changes = {"f:host[0].cpu": "0.25", "f:host[0].address": "10.0.0.1"}
    checked = send(site, visitor, PAGE, do="check", **changes)
    assert checked.status_code == 200
    assert hosts.read_text() == HOSTS
    assert send(site, visitor, PAGE, do="save", **changes).status_code == 303
    assert hosts.read_text() == HOSTS.replace("0.5", "0.25") + 'address = "10.0.0.1"\n'
    assert "saved" in visitor.get(site.url + PAGE).text


def test_what_is_wrong_is_said_as_hat_check_says_it_at_the_field_and_the_line(
    site, visitor, hosts
):
    checked = send(site, visitor, PAGE, do="check", **{"f:host[0].cpu": "7"})
    hosts.write_text(HOSTS.replace("0.5", "7"))
    done = command("hat", "check", hosts, "--json")
    (problem,) = json.loads(done.out)["files"][0]["problems"]
    assert f"line {problem['line']}" in checked.text
    assert checked.text.count(html.escape(problem["message"])) == 2  # in the list, and at its box
    assert 'name="f:host[0].cpu" value="7"' in checked.text
    assert 'aria-invalid="true"' in checked.text


def test_a_file_that_somebody_else_changed_is_not_overwritten(site, visitor, hosts):
    fields = form_of(visitor.get(site.url + PAGE).text) | {"f:host[0].cpu": "0.25", "do": "save"}
    hosts.write_text("# mine\n" + HOSTS)
    answer = visitor.post(site.url + "/file", data=fields, allow_redirects=False)
    assert answer.status_code == 409
    assert "[file-changed]" in answer.text
    assert "cpu = 0.25" in answer.text
    assert hosts.read_text() == "# mine\n" + HOSTS


@pytest.mark.more
def test_the_largest_file_that_is_shown_can_be_saved(site, visitor, hosts):
    largest = HOSTS + "# \u00e9\n" * ((MAX_FILE_BYTES - len(HOSTS)) // 5)
    hosts.write_text(largest)
    assert send(site, visitor, PAGE, do="save", **{"f:host[0].cpu": "0.25"}).status_code == 303
    assert hosts.read_text() == largest.replace("0.5", "0.25")
    hosts.write_text(largest + "#" * MAX_FILE_BYTES)
    assert visitor.get(site.url + PAGE).status_code == 400


def test_a_file_of_very_many_fields_is_changed_as_text(site, visitor, hosts):
    hosts.write_text("".join(f'[[host]]\nname = "h{k}"\n' for k in range(200)))
    text = visitor.get(site.url + PAGE).text
    assert "1500" in text
    assert 'name="f:' not in text
    assert send(site, visitor, PAGE, do="save", text='[[host]]\nname = "ada"\n').status_code == 303
    assert hosts.read_text() == '[[host]]\nname = "ada"\n'


def test_a_host_is_added(site, visitor, hosts):
    answer = send(site, visitor, PAGE, add="host")
    assert 'name="f:host[1].name" value="new-2"' in answer.text
    assert hosts.read_text() == HOSTS
    assert send(site, visitor, PAGE, add="nothing").status_code == 400


def test_added_hosts_share_the_site_of_the_last_and_take_the_focus(site, visitor, hosts):
    hosts.write_text(HOSTS + 'site = "lab"\nuser = "ann"\n')
    answer = send(site, visitor, PAGE, add="host", **{"count:host": "3"})
    listed = tomllib.loads(html.unescape(TEXT.search(answer.text)[1]))["host"]
    assert listed[1:] == [
        {"name": f"new-{number}", "site": "lab", "user": "ann"} for number in (2, 3, 4)
    ]
    focused = re.findall(r'name="([^"]+)"[^>]* autofocus', answer.text)
    assert focused == ["f:host[1].name"]
    for count in ("0", "101", "x", "-1"):
        wrong = send(site, visitor, PAGE, add="host", **{"count:host": count})
        assert wrong.status_code == 400
        assert "[value-range]" in wrong.text


def test_copy_of_a_host_has_its_values_and_a_name_of_its_own(site, visitor, hosts):
    hosts.write_text(HOSTS.replace("ada", "node-09") + 'address = "10.0.0.9"\n')
    answer = send(site, visitor, PAGE, copy="host[0]", do="save")
    assert answer.status_code == 303
    first, second = tomllib.loads(hosts.read_text())["host"]
    assert first["address"] == "10.0.0.9"
    assert second == {"name": "node-10", "slots": 2, "cpu": 0.5}
    assert "# fast" in hosts.read_text()
    assert send(site, visitor, PAGE, copy="host").status_code == 400


def test_links_begin_with_the_pairs_of_sites_that_have_none(site, visitor, hosts):
    hosts.write_text(HOSTS + '[[host]]\nname = "bob"\nsite = "far"\n')
    for _ in range(4):
        assert send(site, visitor, PAGE, add="link", do="save").status_code == 303
    links = tomllib.loads(hosts.read_text())["link"]
    assert [link.get("between") for link in links] == [
        ["local", "local"], ["local", "far"], ["far", "far"], None,
    ]  # fmt: skip


def test_removed_host_goes_with_its_lines_only(site, visitor, hosts):
    hosts.write_text(HOSTS + '\n# slow\n[[host]]\nname = "bob"\n')
    assert send(site, visitor, PAGE, remove="host[0]", do="save").status_code == 303
    assert hosts.read_text() == '# ours\n\n# slow\n[[host]]\nname = "bob"\n'
    assert send(site, visitor, PAGE, remove="host[7]").status_code == 400


ADDABLE = {
    "template": ("parameters", "data", "task", "implementation", "interface", "active_set"),
    "hosts": ("host", "link"),
    "sweep": ("parameters", "input", "cache"),
    "pipeline": ("parameters", "task", "implementation", "interface"),
    "master-worker": ("parameters",),
}


@pytest.mark.parametrize("kind", ADDABLE)
def test_every_table_of_every_file_gets_and_loses_an_entry(site, visitor, own_state, kind):
    path = own_state / f"{kind}.toml"
    path.write_text(new_document(f"{kind}.toml", "heat"))
    before = tomllib.loads(path.read_text())
    page = f"/file?name={kind}.toml"
    for table in ADDABLE[kind]:
        named = {f"key:{table}": "fresh", f"value:{table}": "7"}
        added = send(site, visitor, page, add=table, do="save", **named)
        assert added.status_code == 303, added.text
        now = tomllib.loads(path.read_text())[table]
        assert len(now) == len(before.get(table, ())) + 1
        entry = f"{table}[{len(now) - 1}]" if isinstance(now, list) else f"{table}.fresh"
        removed = send(site, visitor, page, remove=entry, do="save")
        assert removed.status_code == 303, removed.text
        left = {key: value for key, value in tomllib.loads(path.read_text()).items() if value}
        assert left == before


def test_entry_of_a_mapping_needs_a_name(site, visitor, own_state):
    (own_state / "template.toml").write_text(new_document("template.toml", "heat"))
    answer = send(site, visitor, "/file?name=template.toml", add="parameters")
    assert answer.status_code == 400
    assert "[value-missing]" in answer.text


@pytest.mark.parametrize("kind", [*ADDABLE, "user"])
def test_every_box_has_help_of_its_own(site, visitor, own_state, kind):
    (own_state / f"{kind}.toml").write_text(new_document(f"{kind}.toml", "heat"))
    text = visitor.get(f"{site.url}/file?name={kind}.toml").text
    boxes = re.findall(r'name="f:[^"]+"[^>]*aria-describedby="([^" ]+)', text)
    assert len(boxes) == len(re.findall(r'name="f:', text)) > 5
    for place in boxes:
        (words,) = re.findall(rf'id="{re.escape(place)}">([^<]+)<', text)
        assert words.strip(), place


def test_text_that_is_no_toml_is_kept_and_said(site, visitor, hosts):
    answer = send(site, visitor, PAGE, do="check", text="[[host\n")
    assert "line 1" in answer.text
    assert "[[host" in TEXT.search(answer.text)[1]
    assert hosts.read_text() == HOSTS


@pytest.mark.parametrize("name", ["../x.toml", "x.txt", "/etc/x.toml", "nothing.toml"])
def test_nothing_outside_the_folder_is_written(site, visitor, hosts, name):
    answer = send(site, visitor, PAGE, name=name, do="save", text="x = 1")
    assert answer.status_code == 400
    assert sorted(path.name for path in hosts.parent.parent.rglob("*.toml")) == ["hosts.toml"]


# ------------------------------------------------------------------------------ plan
@pytest.fixture
def sample(own_state, monkeypatch):
    for file in filter(Path.is_file, EXAMPLE.iterdir()):
        shutil.copy(file, own_state)
    monkeypatch.chdir(own_state)
    return "/plan?weather=static"


def test_a_plan_is_what_the_command_says_with_the_command_to_copy(site, visitor, sample):
    text = visitor.get(site.url + sample).text
    said = command("apples", "plan", "--weather", "static", "--json").document
    assert is_tame(text)
    for strip in said["chosen"]["strips"]:
        assert f'<data value="{strip["seconds"]!r}">' in text
    for one in (*said["left_out"], *said["rejected"]):
        assert html.escape(one["reason"], quote=False) in html.unescape(text).replace("&#39;", "'")
    typed = re.search(r"does this: <code>(.*?)</code>", text)[1]
    assert command(*html.unescape(typed).split(), "--json").document == said


@pytest.fixture
def weather(sample, own_state):  # noqa: ARG001 - its files
    """A recorded weather in which the first host of the sample is busy."""
    (first, *_) = tomllib.loads((own_state / "hosts.toml").read_text())["host"]
    busy = Forecast(0.25, 0.01, "last", 9, 0.0)
    path = own_state / "busy.json"
    path.write_text(Weather(0.0, cpu={first["name"]: busy}).to_json())
    (own_state / "other.json").write_text("{}")
    return path.name


def without_moment(document):
    """Return a plan without the time at which a remembered weather was read."""
    return document | {"weather": document["weather"] | {"time": None}}


@pytest.mark.parametrize("name", ["static", "remembered", "busy.json"])
def test_plan_under_each_weather_is_that_of_the_command(site, visitor, own_state, weather, name):
    assert DocumentFolder(own_state).weather_files() == [weather]
    remembered(read_host_list(own_state / "hosts.toml"))
    document = command("apples", "plan", "--weather", name, "--json").document
    files = {"templates": ["template.toml"], "hosts": ["hosts.toml"], "users": ["user.toml"]}
    page = planned(DocumentFolder(own_state), asked({"weather": name}, files))
    assert without_moment(page) == without_moment(document)
    assert document["weather"]["kind"] == ("static" if name == "static" else "measured")
    text = visitor.get(f"{site.url}/plan?weather={name}").text
    for strip in document["chosen"]["strips"]:
        assert f'<data value="{strip["seconds"]!r}">' in text
    assert re.search(rf"Weather used: <bdi>{name}</bdi>", text)
    typed = re.search(r"does this: <code>(.*?)</code>", text)[1]
    typed_document = command(*html.unescape(typed).split(), "--json").document
    assert without_moment(typed_document) == without_moment(document)


def test_two_plans_stand_side_by_side_as_they_compare(site, visitor, own_state, weather):
    kept = []
    for name in ("static", weather):
        document = command("apples", "plan", "--weather", name, "--json").document
        kept.append(own_state / f"plan-{name}")
        kept[-1].write_text(json.dumps(document))
    compared = compare(*kept).document()
    answer = visitor.get(site.url + "/plan", params={"weather": "static", "weather2": weather})
    assert is_tame(answer.text)
    for plan in compared["plans"]:
        assert f'<data value="{plan["iteration_seconds"]!r}">' in answer.text
    for host in compared["hosts"]:
        for reason in filter(None, host["reasons"]):
            assert html.escape(reason, quote=False) in html.unescape(answer.text)
    typed = re.search(r"second plan: <code>(.*?)</code>", answer.text)[1]
    second = command(*html.unescape(typed).split(), "--json").document
    assert second["chosen"]["iteration_seconds"] == compared["plans"][1]["iteration_seconds"]


def test_second_plan_without_user_and_parameters_differs_in_these(site, visitor, sample):
    page = visitor.get(site.url + sample, params={"set": "grid=500", "user2": "-", "set2": "-"})
    typed = re.search(r"second plan: <code>(.*?)</code>", page.text)[1]
    assert "--user" not in typed
    assert "--set" not in typed
    wrong = visitor.get(site.url + sample, params={"set2": "nothing=1"})
    assert "[parameter-unknown]" in wrong.text
    same = visitor.get(site.url + sample, params={"weather2": "static"})
    assert "second plan:" not in same.text


def test_live_weather_is_measured_and_named(site, visitor, own_state):
    new("heat", own_state)
    files = {"template": "heat/template.toml", "hosts": "heat/hosts.toml", "weather": "live"}
    text = visitor.get(site.url + "/plan", params=files).text
    assert "Weather used: <bdi>live</bdi>, from <bdi>this process</bdi>" in text


@pytest.mark.usefixtures("sample")
def test_weather_file_outside_the_folder_is_not_read(site, visitor):
    answer = visitor.get(site.url + "/plan", params={"weather": "../busy.json"})
    assert "[name-invalid]" in answer.text


def test_a_file_that_becomes_another_kind_is_another_choice(own_state, sample):  # noqa: ARG001 - its files
    folder = DocumentFolder(own_state)
    before = choices(folder)
    assert before == choices(folder)
    assert before["templates"] == ["template.toml"]
    (own_state / "template.toml").write_text((own_state / "hosts.toml").read_text())
    (own_state / "user.toml").unlink()
    after = choices(folder)
    assert after == {"templates": [], "hosts": ["hosts.toml", "template.toml"], "users": []}


def test_what_cannot_be_planned_is_said_as_the_command_says_it(site, visitor, sample):
    for setting in ("grid=x", "nothing=1", "grid"):
        said = command("apples", "plan", "--weather", "static", "--set", setting)
        text = visitor.get(site.url + sample, params={"set": setting}).text
        assert said.error_codes
        assert said.err.removeprefix("apples: ").strip() in html.unescape(text)
    answer = visitor.get(
        site.url + "/plan", params={"template": "../x.toml", "hosts": "hosts.toml"}
    )
    assert "[name-invalid]" in answer.text
    assert "../x.toml" in answer.text


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_plan_is_run_detached_and_its_page_is_shown(site, visitor, sample):
    """It starts a real job of some seconds."""
    page = sample + "&set=grid%3D200+iterations%3D50"
    token = form_of_plan(visitor.get(site.url + page).text)
    answer = visitor.post(site.url + "/plan/run", data=token, allow_redirects=False)
    assert answer.status_code == 303, answer.text
    job = store.job(answer.headers["location"].rpartition("/")[2])
    assert job.until_over(120)
    assert job.record()["state"] == "finished"
    assert "jacobi2d took" in visitor.get(site.url + answer.headers["location"]).text


def form_of_plan(text):
    return {name: html.unescape(value) for name, value in HIDDEN.findall(text)}

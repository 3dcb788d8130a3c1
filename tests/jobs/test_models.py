"""``apples plan`` and ``apples run`` take every model; an option of another model is an error."""

from pathlib import Path

import pytest
from commands import HOSTS, command, refused

import hat
from apples.__main__ import COMMANDS
from apples.applications import files
from apples.jobs import APPLY, EVERY_MODEL, FILES, GRID
from apples.ui import parameter_of

TEXTS = {
    GRID: 'name = "x"\nprogram = ["{python}", "x.py"]\n',
    files.SWEEP: 'name = "x"\ncommand = ["x"]\nparameters = {n = [1]}\n',
    files.MASTER_WORKER: 'name = "x"\nunits = "9"\n',
    files.PIPELINE: 'name = "x"\nitems = "9"\n',
}
VERBS = {verb: COMMANDS[verb].load() for verb in ("plan", "run")}


def options_of(verb):
    """Return the names of the options that a user can type."""
    return [
        max(parameter.opts, key=len) for parameter in VERBS[verb].params if parameter.expose_value
    ]


def typed(verb, name):
    """Return the words of an option; for one with a default, the default."""
    parameter = parameter_of(VERBS[verb], name)
    if parameter.is_flag:
        return [name]
    least = getattr(parameter.type, "min", None)
    default = parameter.default if isinstance(parameter.default, str) else None
    return [name, default or ("x=1" if least is None else str(least))]


PAIRS = [
    (verb, model, name)
    for verb in VERBS
    for model in TEXTS
    for name in options_of(verb)
    if name != "--template"
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of each model and no host list."""
    monkeypatch.chdir(tmp_path)
    for model, text in TEXTS.items():
        Path(f"{model.replace('/', '-')}.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(("verb", "model", "name"), PAIRS)
@pytest.mark.usefixtures("folder")
def test_option_of_another_model_is_a_conflict(verb, model, name):
    file = f"{model.replace('/', '-')}.toml"
    words = [verb, "--template", file, *typed(verb, name)]
    done = command("apples", *words, *([] if name == "--json" else ["--json"]))
    assert done.out == ""
    if name in {*EVERY_MODEL, *APPLY[model]}:
        assert done.failure["code"] != "option-conflict"
    else:
        assert (done.code, done.failure["code"]) == (2, "option-conflict")
        assert done.failure["fields"] == {
            "options": [name, "--template"],
            "model": model,
            "file": file,
        }
        assert name in done.failure["message"]
        assert model in done.failure["message"]


def test_table_names_each_option_and_each_model():
    options = {name for verb in VERBS for name in options_of(verb)}
    assert options == {*EVERY_MODEL, *(name for names in APPLY.values() for name in names)}
    assert set(TEXTS) == set(APPLY)
    assert hat.TEMPLATE == GRID


def test_table_names_the_kinds_that_check_prints(folder):
    for model in APPLY:
        assert files.inspect(folder / f"{model.replace('/', '-')}.toml").kind == model


@pytest.mark.parametrize("name", FILES)
def test_only_application_of_the_folder_is_planned(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = name.removesuffix(".toml")
    assert command("hat", "new", "one", "--structure", kind).code == 0
    monkeypatch.chdir("one")
    planned = command("apples", "plan", "--json")
    assert command("apples", "plan", "--template", name, "--json").document == planned.document
    assert command("apples", "run", "--dry-run", "--json").document == planned.document
    Path(next(other for other in FILES if other != name)).write_text("")
    assert command("apples", "plan").error_codes == ["file-missing"]
    Path("template.toml").write_text("nme = 1\n")
    assert "template.toml:1" in command("apples", "plan").err


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_host_list_as_template_is_an_error_of_its_kind(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hosts.toml").write_text(HOSTS)
    failure = refused("apples", verb, "--template", "hosts.toml")
    assert (failure["exit_code"], failure["code"]) == (2, "file-invalid")
    assert failure["fields"] == {"file": "hosts.toml", "value": "host list"}

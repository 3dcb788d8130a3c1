"""Options that only the value of another option or argument makes useless are rejected, too."""

import shutil
from pathlib import Path

import pytest
from commands import command

FILES = Path(__file__).parents[1] / "golden" / "files"
CASES = {
    "apples report results.jsonl --out page.html --processors 8": "--processors",
    "apples report results.jsonl --out page.html --seed 1": "--seed",
    "apples report results.jsonl --out page.html --policy easy --policy sd": "--policy",
    "apples report log.swf --out page.html --timeline": "--timeline",
    "apples report d8232103 --scheduler elsewhere": "--scheduler",
    "apples report d8232103 e7039157 --scheduler elsewhere": "--scheduler",
    "apples wait b19e11e0 --timeline": "--timeline",
    "apples wait 5eeb0001 --timeline": "--timeline",
    "apples wait d8232103 --scheduler elsewhere": "--scheduler",
    "apples queue --scheduler recorded --token-file token": "--token-file",
    "apples queue --scheduler recorded --ca ca.pem": "--ca",
    "apples run-program --signal none --signal-seconds 2 -- true": "--signal-seconds",
    "apples simulate log.swf --policy easy --malleable-fraction 0.5": "--malleable-fraction",
    "apples simulate kale:jobs=9,adaptive=1 --policy sd --processors 4096 --malleable-fraction 0.5": (
        "--malleable-fraction"
    ),
    "apples plan --weather static --fresh": "--fresh",
    "apples plan --learned": "--learned",
    "apples run --weather remembered --learned --dry-run": "--learned",
    "apples run --weather static --slurm partition=short": "--slurm",
    "nws extract availableCpu/ada --since 60 --step 1 --count 9": "--count",
    "nws query --service http://127.0.0.1:9 --ca ca.pem": "--ca",
}


@pytest.fixture(autouse=True)
def _recorded(tmp_path, monkeypatch):
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "recorded"))
    Path("token").write_text("word\n")


@pytest.mark.parametrize("words", CASES)
def test_option_without_effect_is_rejected(words):
    before, dashes, after = words.partition(" -- ")
    done = command(*before.split(), "--json", *([dashes.strip(), after] if dashes else []))
    failure = done.failure
    assert (failure["exit_code"], failure["code"]) == (2, "option-not-applicable")
    assert failure["fields"]["option"] == CASES[words]


@pytest.mark.parametrize("option", [("--commit", "5"), ("--warm", "ada")], ids=" ".join)
@pytest.mark.parametrize("way", [[], ["--detach"], ["--dry-run"]], ids=" ".join)
def test_program_that_is_not_malleable_takes_no_option_of_resizes(option, way):
    failure = command("apples", "run", "--weather", "static", *option, *way, "--json").failure
    assert (failure["exit_code"], failure["code"]) == (2, "program-not-malleable")
    assert failure["fields"]["option"] == option[0]


@pytest.mark.parametrize("policy", ["migrate", "decider", "equipartition"])
def test_policy_that_moves_jobs_takes_the_malleable_fraction(policy):
    words = ["log.swf", "--policy", policy, "--malleable-fraction", "0.5"]
    assert command("apples", "simulate", *words).code == 0


@pytest.mark.parametrize("mode", ["--new-token", "--revoke"])
@pytest.mark.parametrize("place", ["--directory", "--name"])
def test_file_of_tokens_is_named_once(mode, place):
    done = command("apples", "scheduler", mode, "ada", "--tokens", "tokens.json", place, "lab")
    assert (done.code, done.error_codes) == (2, ["option-conflict"])
    assert not Path("tokens.json").exists()


def test_run_that_cannot_be_resized_takes_no_option_of_resizes():
    with Path("template.toml").open("a") as template:
        template.write("malleable = true\n")
    words = ["apples", "run", "--weather", "static", "--actuator", "local", "--commit", "5"]
    failure = command(*words, "--json").failure
    assert (failure["exit_code"], failure["code"]) == (2, "option-not-applicable")
    assert failure["fields"]["option"] == "--commit"

"""The job script: placement line by line, and no text of anybody's ever reaches a shell."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import ApplesError, LaunchError, UsageError
from apples.launch import RankGroup, SlurmOptions, SlurmTarget, minutes, slurm_command
from apples.launch import rank_wrapper as rank

WORDS = [
    "; touch canary",
    "$(touch canary)",
    "`touch canary`",
    "\ntouch canary\n",
    "|touch canary",
]
TEXT = (
    st.text(max_size=30)
    | st.sampled_from(WORDS)
    | st.builds("{}{}".format, st.text(max_size=5), st.sampled_from(WORDS))
)


def target(host, ranks=1, program=("prog",), python="/usr/bin/python3", directory=""):
    return SlurmTarget(RankGroup(host, ranks, program), python, directory)


def built(*targets, **more):
    more = {"job": "7f", "seconds": 60.0, "directory": Path("/shared"), **more}
    return slurm_command(targets, {"mode": "run"}, **more)


def test_every_rank_has_its_line_in_strip_order():
    order = built(target("h3"), target("h1", 2), target("h2"))
    assert order.files["machines"].split() == ["h3", "h1", "h1", "h2"]
    assert "--nodes=3 --ntasks=4" in order.files["job.sh"]
    assert "--distribution=arbitrary --nodelist=./machines" in order.files["job.sh"]
    assert [rank.target(json.loads(order.files["launch.json"])["hosts"], i)["host"] for i in range(4)] == [
        "h3", "h1", "h1", "h2",
    ]  # fmt: skip


def test_ranks_under_srun_have_addresses_that_fit_its_lines_unless_the_user_says_otherwise(
    monkeypatch,
):
    def network():
        (host,) = json.loads(built(target("a")).files["launch.json"])["hosts"]
        return host["environment"]["MPIR_CVAR_CH4_NETMOD"]

    monkeypatch.delenv("MPIR_CVAR_CH4_NETMOD", raising=False)
    assert network() == "ofi"
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", "ucx")
    assert network() == "ucx"


def test_a_step_asks_for_nothing_that_only_a_job_can_have():
    options = SlurmOptions(partition="debug", account="me")
    job, step = (
        built(target("a"), options=options),
        built(target("a"), options=options, allocation="12"),
    )
    assert "#SBATCH --partition=debug\n#SBATCH --account=me\n" in job.files["job.sh"]
    assert "debug" not in step.files["job.sh"]
    assert "--overlap" in step.files["job.sh"]
    assert step.argv[-1] == "12"


def test_each_host_has_its_own_interpreter():
    order = built(
        target("a", 2, python="/opt/one/python"), target("b", python="/opt/the other/python")
    )
    assert order.files["pythons"].splitlines() == ["/opt/one/python"] * 2 + [
        "/opt/the other/python"
    ]


@pytest.mark.parametrize("name", ["; rm -rf", "-x", "a b", "a\nb", "", "a$(b)", "../a", "a/b"])
def test_no_node_can_be_called_that(name):
    with pytest.raises(LaunchError) as raised:
        built(target(name))
    assert (raised.value.code, raised.value.fields["host"]) == ("node-name-invalid", name)


@pytest.mark.parametrize("value", ["a b", "x;y", "$HOME", "a\n#SBATCH --uid=0", "-x", "`a`"])
def test_no_option_can_be_that(value):
    with pytest.raises(UsageError) as raised:
        SlurmOptions(partition=value)
    assert raised.value.code == "value-invalid"
    assert raised.value.fields == {"field": "partition", "value": value}
    with pytest.raises(UsageError) as raised:
        SlurmOptions.of({"constraint": value})
    assert raised.value.fields == {"field": "constraint", "value": value}


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("minutes", "ten", "value-type"),
        ("minutes", "0", "value-range"),
        ("minutes", "-1", "value-type"),
        ("color", "red", "field-unknown"),
    ],
)
def test_options_that_make_no_sense_are_named(name, value, code):
    with pytest.raises(UsageError) as raised:
        SlurmOptions.of({name: value})
    assert (raised.value.code, raised.value.fields["field"]) == (code, name)


def test_the_time_limit_covers_thrice_the_prediction():
    assert minutes(600, SlurmOptions()) * 60 > 3 * 600
    assert minutes(1e12, SlurmOptions()) <= 60 * 24 * 365


def started(order, folder, ranks):
    """Run the job's script as its batch host would, with an srun that starts the ranks one after the other."""
    for name, text in order.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    fake = folder / "bin"
    fake.mkdir()
    script = f"""#!/bin/sh
for SLURM_PROCID in {" ".join(map(str, range(ranks)))}; do
  export SLURM_PROCID
  for word do case $word in /bin/sh) found=1;; esac; [ "$found" ] && break; shift; done
  "$@"
done
"""
    (fake / "srun").write_text(script)
    (fake / "srun").chmod(0o755)
    environment = {"PATH": f"{fake}:{os.environ['PATH']}"}
    return subprocess.run(
        ["/bin/bash", "job.sh"],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=120,
        check=False,
    )


def test_the_script_starts_every_rank_with_its_program_and_keeps_a_record(tmp_path):
    say = ("-c", "import os, sys; print(sys.argv[1:], os.environ['APPLES_TASK'])", "it's; $HOME")
    order = built(
        target(
            "a", program=(sys.executable, *say), python=sys.executable, directory=str(tmp_path)
        ),
        target(
            "b", program=(sys.executable, *say), python=sys.executable, directory=str(tmp_path)
        ),
    )
    done = started(order, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    line = f'["it\'s; $HOME"] {tmp_path / "task.json"}\n'
    assert (tmp_path / "output").read_text() == line  # the first rank's
    assert done.stdout.decode() == line  # the other's
    assert (tmp_path / "end").read_text() == "0\n"


SAY_CPUS = "import os; print(sorted(os.sched_getaffinity(0)))"


@pytest.mark.parametrize(
    ("interpreter", "note"),
    [
        (sys.executable, ""),
        ("/no/such/python", "apples: note: .*/no/such/python"),
    ],
)
def test_ranks_are_bound_inside_the_job_or_it_is_said_why_not(tmp_path, interpreter, note):
    own = sorted(os.sched_getaffinity(0))
    program = (sys.executable, "-c", SAY_CPUS)
    order = built(target("a", 2, program, sys.executable, str(tmp_path)))
    order.files["interpreter"] = interpreter
    done = started(order, tmp_path, 2)
    first = json.loads((tmp_path / "output").read_text())
    second = json.loads(done.stdout)
    if note or len(own) < 2:
        assert first == second == own
    else:
        assert sorted(first + second) == own
    said = done.stderr.decode()
    assert re.match(note + "[^\n]*\n$" if note else "^$", said)


def test_a_rank_never_leaves_what_its_task_was_given(tmp_path):
    program = (sys.executable, "-c", SAY_CPUS)
    order = built(target("a", 1, program, sys.executable, str(tmp_path)))
    order.files["places.json"] = "[[4000]]"
    done = started(order, tmp_path, 1)
    assert json.loads((tmp_path / "output").read_text()) == sorted(os.sched_getaffinity(0))
    assert b"apples: note: rank 0 " in done.stderr


@settings(max_examples=examples(15))
@given(st.data())
def test_no_text_of_a_host_list_or_template_runs_as_a_command(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("script")
    texts = data.draw(st.lists(TEXT, min_size=6, max_size=6))
    host, word, python, directory, job_text, option = texts
    try:
        options = SlurmOptions.of({"partition": option}) if option else SlurmOptions()
        order = built(
            target(host or "a", program=("/bin/true", word), python=python, directory=directory),
            target("b", program=("/bin/echo", word), python=python, directory=directory),
            options=options,
        )
    except ApplesError:
        order = built(
            target("a", program=("/bin/true", word.replace("\0", "")), directory=directory),
        )
    started(order, folder, 2)
    assert not (folder / "canary").exists()
    assert not Path("canary").exists()
    del job_text


@given(st.lists(TEXT, min_size=5, max_size=5))
def test_whatever_is_built_the_script_holds_only_numbers_and_checked_names(texts):
    host, word, python, directory, option = texts
    try:
        order = built(
            target(host, program=("prog", word), python=python, directory=directory),
            options=SlurmOptions.of({"account": option}),
        )
    except ApplesError:
        return
    for line in order.files["job.sh"].splitlines():
        if line.startswith("#SBATCH"):
            assert all(w.startswith("--") for w in shlex.split(line.removeprefix("#SBATCH")))
    assert order.files["rank.sh"] == built(target("a")).files["rank.sh"]
    assert (
        len(order.files["machines"].splitlines()) == len(order.files["pythons"].splitlines()) == 1
    )

import json
import os
import subprocess
import sys

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch import RankGroup, command, expect_processes, hydra, noted_processes
from apples.launch import rank_wrapper as bind

BECOME = """
import os, sys
from apples.launch import rank_wrapper
folder, names = sys.argv[1], (f"{os.getpid()}:{os.getuid()}:0", f"{os.getpid()}0:{os.getuid()}:0")
rank_wrapper.SHARED_MEMORY = folder + "/memory"
for name in names:
    open(os.path.join(rank_wrapper.SHARED_MEMORY, name), "w").close()
print(*names, flush=True)
entry = {"host": "here", "program": ["ls", rank_wrapper.SHARED_MEMORY], "cpus": [], "cgroup": ""}
rank_wrapper.become(entry, {"directory": "/"}, folder, 0, by_srun=False)
"""
HOSTILE = [
    *(":", "-n", "--", "", "-", "-genv", "%p", "..", "*", "é", "'", '"', "\\", "\t", "\r", "a\nb"),
    *("$(touch canary)", "`touch canary`", "; touch canary", "| touch canary", "&& touch canary"),
]
hostile = st.sampled_from(HOSTILE) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=20
)
programs = st.lists(hostile, max_size=4).map(lambda rest: ("true", *rest))
segments_of = st.lists(
    st.builds(
        RankGroup,
        host=hostile,
        ranks=st.integers(1, 9),
        program=programs,
        cpus=st.lists(st.integers(0, 99)).map(tuple),
        cgroup=hostile,
    ),
    min_size=1,
    max_size=4,
)


@given(segments_of, st.dictionaries(hostile, hostile), hostile)
def test_nothing_a_user_named_is_on_the_command_line(rank_groups, parameters, directory):
    order = command(rank_groups, {"parameters": parameters}, "/" + directory)
    first = [hydra.mpiexec(), *hydra.OPTIONS]
    parts = [
        [
            *(":",) * bool(i),
            "-n",
            str(s.ranks),
            sys.executable,
            "-I",
            "-S",
            bind.__file__,
            "launch.json",
            str(i),
        ]
        for i, s in enumerate(rank_groups)
    ]
    assert list(order.argv) == [*first, *(word for part in parts for word in part)]
    launch = json.loads(order.files["launch.json"])
    assert [tuple(host["program"]) for host in launch["hosts"]] == [s.program for s in rank_groups]
    assert json.loads(order.files["task.json"]) == {"parameters": parameters}


@pytest.mark.more
@given(st.lists(hostile, max_size=6))
@settings(
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_a_program_gets_its_arguments_and_nothing_else_happens(tmp_path, arguments):
    """The rank's own start, for real: no argument is split, joined, expanded or run."""
    show = (sys.executable, "-I", "-S", "-c", "import sys; print(ascii(sys.argv[1:]))")
    order = command([RankGroup("ada", 1, (*show, *arguments))], {}, tmp_path)
    for name, text in order.files.items():
        (tmp_path / name).write_text(text)
    start = order.argv[order.argv.index(sys.executable) :]
    told = subprocess.run(start, cwd=tmp_path, capture_output=True, check=True, timeout=120)
    assert told.stdout.decode().strip() == ascii(arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["launch.json", "task.json"]


@pytest.mark.parametrize(
    ("rank_group", "code"),
    [
        (RankGroup("ada", 0, ("true",)), "ranks-invalid"),
        (RankGroup("ada", 1, ()), "program-missing"),
        (RankGroup("ada", 1, ("true", "a\0b")), "program-invalid"),
    ],
)
def test_what_cannot_be_started_is_refused(rank_group, code):
    with pytest.raises(LaunchError) as raised:
        command([rank_group], {})
    assert (raised.value.code, raised.value.fields["host"]) == (code, "ada")


def test_a_missing_mpiexec_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(LaunchError) as raised:
        command([RankGroup("ada", 1, ("true",))], {})
    assert raised.value.code == "mpi-missing"
    assert raised.value.fields["file"] == str(tmp_path / "mpiexec")


def test_variables_of_an_outer_launcher_are_kept_out(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("HYDRA_IFACE", "eth0")
    made = hydra.environment({"APPLES_TASK": "task.json"})
    assert made["APPLES_TASK"] == "task.json"
    assert not {"PMI_RANK", "HYDRA_IFACE"} & set(made)
    assert made["PATH"] == os.environ["PATH"]


def test_a_rank_starts_without_what_a_killed_process_of_its_number_left_and_notes_that_number(
    tmp_path,
):
    (tmp_path / "memory").mkdir()
    expect_processes(str(tmp_path))
    words = [sys.executable, "-c", BECOME, str(tmp_path)]
    own, others, *found = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.split()
    assert found == [others]
    assert noted_processes(str(tmp_path)) == {int(own.partition(":")[0])}

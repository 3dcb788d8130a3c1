"""`apples.h` and `apples.f90`: programs in C and Fortran, by hand and under an agent, with every MPI there is."""

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from commands import command

from apples.applications import TEMPLATES, new
from apples.launch import ProblemSize, check_program, hydra
from apples.program import TaskError, read_task

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "c-and-fortran.md"
HEADER, MODULE = TEMPLATES / "c" / "apples.h", TEMPLATES / "fortran" / "apples.f90"
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")
WHEEL = Path(hydra.mpiexec()).parent
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""In CI everything is done by root, which Open MPI refuses otherwise."""
GRID = {"grid": 24, "iterations": 9}

needs_cc = pytest.mark.skipif(
    not (shutil.which("cc") and (WHEEL / "mpicc").exists()) or " " in str(WHEEL),
    reason="no C compiler (cc), or no mpicc of the wheel, which works below no folder with a blank",
)
pytestmark = needs_cc
LANGUAGES = [
    "c",
    pytest.param(
        "fortran",
        marks=[
            pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran"),
            pytest.mark.more,
        ],
    ),
]
EACH = pytest.mark.parametrize("language", LANGUAGES)


def called(words, *, text=True, given=None, **environment):
    """Run a command without another launcher's variables."""
    return subprocess.run(
        [str(word) for word in words],
        env=hydra.environment(
            {**hydra.LOOPBACK, **hydra.ONE_THREAD, **ENVIRONMENT, **environment}
        ),
        input=given,
        capture_output=True,
        text=text,
        timeout=120,
        check=False,
    )


def built(folder, *, mpicc=WHEEL / "mpicc", fc="gfortran", flags=""):
    """Build a scaffold's program as its Makefile does, without any warning; return its path."""
    given = [f"{name}={value}" for name, value in (("MPICC", mpicc), ("FC", fc))]
    makefile = (folder / "Makefile").read_text()
    for name in re.findall(r"^(C|F)FLAGS = .*$", makefile, re.MULTILINE):
        own = re.search(rf"^{name}FLAGS = (.*)$", makefile, re.MULTILINE)[1]
        given.append(f"{name}FLAGS={own} -Werror {flags}")
    done = called(["make", "-s", "-C", folder, *given])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return folder / "program"


@pytest.fixture(scope="module")
def scaffolded(tmp_path_factory):
    """Return what gives the folder of a language's scaffold, its program built once."""
    found = {}

    def scaffolded(language):
        if language not in found:
            place = tmp_path_factory.mktemp(language)
            found[language] = new("heat", place, kind=language)[0].parent
            built(found[language])
        return found[language]

    return scaffolded


@pytest.fixture
def folder(scaffolded, language):
    return scaffolded(language)


def partition(*pieces):
    first = [sum(rows for *_, rows in pieces[:k]) for k in range(len(pieces))]
    return [
        {"host": host, "address": "127.0.0.1", "ranks": ranks, "first_row": at, "rows": rows}
        for at, (host, ranks, rows) in zip(first, pieces, strict=True)
    ]


def task(*pieces, **more):
    found = {"schema": "apples.task/1", "mode": "run", "parameters": GRID, "implementations": {}}
    found |= {"output": None, "save": False, "progress_seconds": 0}
    return found | {"partition": partition(*(pieces or [("ada", 1, 24)]))} | more


def mpiexec(ranks, launcher=None):
    if launcher is None:
        return [hydra.mpiexec(), *hydra.OPTIONS, "-n", ranks] if ranks > 1 else []
    return [launcher, *(["--oversubscribe"] if "openmpi" in launcher else []), "-n", ranks]


def asked(program, text, tmp_path, *, ranks=1, launcher=None):
    """Run a program as an agent does: code, events, and what it said on standard error."""
    path = tmp_path / "task.json"
    path.write_bytes(text if isinstance(text, bytes) else json.dumps(text).encode())
    done = called([*mpiexec(ranks, launcher), program], APPLES_TASK=str(path))
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, events, done.stderr


def by_hand(program, *settings, ranks=1, launcher=None):
    done = called([*mpiexec(ranks, launcher), program, *settings])
    assert done.returncode == 0, done.stderr
    return re.fullmatch(
        r"(\d+) iterations in \S+ s on (\d+) ranks? \((.*)\), sha256 ([0-9a-f]{16})",
        done.stdout.splitlines()[0],  # mpiexec prints exit codes after it
    ).groups()


def alone(grid, iterations):
    """Return the digest that numpy's sweeps come to, and the grid."""
    old = np.zeros((grid + 2, grid + 2))
    old[0] = old[-1] = old[:, 0] = old[:, -1] = 1.0
    for _ in range(iterations):
        inner = (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]) / 4
        old[1:-1, 1:-1] = inner
    result = np.ascontiguousarray(old[1:-1, 1:-1])
    return hashlib.sha256(result.tobytes()).hexdigest(), result


# ------------------------------------------------------------------ the header and the module
@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("mpicc", ["-std=c99", "-x", "c"]),
        pytest.param("mpicxx", ["-DAPPLES_IMPLEMENTATION", "-x", "c++"], marks=pytest.mark.more),
    ],
)
def test_the_header_compiles_without_a_warning(compiler, words, tmp_path):
    """As C with its implementation it does in every scaffold that is built here."""
    if compiler == "mpicxx" and not shutil.which("c++"):
        pytest.skip("no C++ compiler (c++)")
    done = called([WHEEL / compiler, *WARNINGS, *words, "-c", HEADER, "-o", tmp_path / "a.o"])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_has_every_call_of_the_header():
    declared = HEADER.read_text().split("#endif /* APPLES_H */")[0]
    calls = set(re.findall(r"^\S.*?\b\*?(apples_\w+)\(", declared, re.MULTILINE))
    public = set(
        re.findall(r"\bapples_\w+", " ".join(re.findall(r"public :: .*", MODULE.read_text())))
    )
    assert len(calls) > 20
    assert calls - {"apples_fortran_comm"} == public
    assert 'name="apples_fortran_comm"' in MODULE.read_text()


DRIVER = r"""
#define APPLES_IMPLEMENTATION
#include "apples.h"
static void again(struct apples_line *line, struct apples_value *value)
{
    struct apples_value *one;
    const char *brackets = value->kind == APPLES_LIST ? "[]" : "{}";
    if (value->kind == APPLES_NULL) apples_add(line, "null");
    if (value->kind == APPLES_TRUTH) apples_add(line, value->integer ? "true" : "false");
    if (value->kind == APPLES_INTEGER) apples_add(line, "%ld", value->integer);
    if (value->kind == APPLES_NUMBER) apples_add_number(line, value->number, NULL);
    if (value->kind == APPLES_STRING) apples_add_text(line, value->text);
    if (value->kind < APPLES_LIST) return;
    apples_add(line, "%c", brackets[0]);
    for (one = value->child; one; one = one->next) {
        if (one->name) { apples_add_text(line, one->name); apples_add(line, ": "); }
        again(line, one);
        if (one->next) apples_add(line, ", ");
    }
    apples_add(line, "%c", brackets[1]);
}
static void release(struct apples_value *value)
{
    while (value) {
        struct apples_value *next = value->next;
        release(value->child);
        free(value->name); free(value->text); free(value);
        value = next;
    }
}
int main(int argc, char **argv)
{
    static char line[1 << 20];
    (void)argv;
    while (fgets(line, sizeof line, stdin)) {
        size_t length = strlen(line);
        line[--length] = '\0';
        if (argc > 1) {
            char letters[65];
            struct apples_sha256 digest;
            memset(&digest, 0, sizeof digest);
            memcpy(digest.state, apples_sha256_begin, sizeof digest.state);
            apples_sha256_add(&digest, (unsigned char *)line, length / 3);
            apples_sha256_add(&digest, (unsigned char *)line + length / 3, length - length / 3);
            apples_sha256_end(&digest, letters);
            printf("%s %08x\n", letters, (unsigned)apples_crc32((unsigned char *)line, length));
        } else { /* a copy of its own length: who reads beyond it is found out */
            char *copy = (char *)malloc(length + 1);
            struct apples_line out = {NULL, 0, 0};
            struct apples_reader reader = {NULL, NULL, NULL, 0};
            struct apples_value *value;
            memcpy(copy, line, length + 1);
            reader.begin = reader.at = copy;
            value = apples_read_value(&reader);
            apples_skip(&reader);
            if (reader.wrong || *reader.at) printf("refused: %s\n", reader.wrong ? reader.wrong : "more");
            else { again(&out, value); puts(out.text); }
            free(out.text); release(value); free(copy);
        }
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A program that reads JSON a line and writes it again; under the sanitizers where the compiler has them."""
    place = tmp_path_factory.mktemp("driver")
    (place / "driver.c").write_text(DRIVER)
    words = [WHEEL / "mpicc", "-std=c99", f"-I{HEADER.parent}", "-g", place / "driver.c"]
    words += ["-o", place / "driver", "-lm"]
    if called([*words, "-fsanitize=address,undefined", "-fno-sanitize-recover"]).returncode:
        assert called(words).returncode == 0
    return place / "driver"


def said_by(driver, lines, *arguments):
    done = called([driver, *arguments], text=False, given=b"".join(line + b"\n" for line in lines))
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    found = done.stdout.split(b"\n")[:-1]
    assert len(found) == len(lines)
    return found


def drawn(draw, depth=0):
    """Return a random document."""
    kind = draw.randrange(5 if depth > 4 else 7)
    if kind < 2:
        return draw.choice([None, True, False, draw.randrange(-(2**63), 2**63), 0, -1])
    if kind == 2:
        return draw.choice([0.25, -1e-300, 1.7976931348623157e308, draw.random()])
    if kind < 5:
        letters = [*'"\\/\b\f\n\r\t\x01\x7f az0', "é", "\u2028", "\ud7ff", "\uffff", "😀"]
        return "".join(draw.choices(letters, k=draw.randrange(12)))
    if kind == 5:
        return [drawn(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {f"{drawn(draw, 9)}": drawn(draw, depth + 1) for _ in range(draw.randrange(4))}


def test_json_is_read_and_written_as_it_is_meant(driver):
    draw = random.Random(15)
    documents = [drawn(draw) for _ in range(500)]
    lines = [
        json.dumps(one, ensure_ascii=draw.random() < 0.5, indent=None).encode()
        for one in documents
    ]
    for document, answer in zip(documents, said_by(driver, lines), strict=True):
        assert json.loads(answer) == document


def test_damaged_json_is_refused_or_means_what_it_meant(driver):
    draw = random.Random(16)
    lines = []
    for _ in range(1500):
        line = bytearray(json.dumps(drawn(draw), ensure_ascii=draw.random() < 0.5).encode())
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(len(line) + 1)
            line[place : place + draw.randrange(3)] = draw.choice(
                [
                    b"",
                    b"\\",
                    b'"',
                    b"{",
                    b"]",
                    b"\\ud800",
                    b"\\u0041",
                    b"\xff",
                    b"-",
                    b"1e9999",
                    b"\x01",
                ]
            )
        lines.append(bytes(line))
    refused = 0
    for line, answer in zip(lines, said_by(driver, lines), strict=True):
        if answer.startswith(b"refused: "):
            refused += 1
        else:
            assert json.loads(answer) == json.loads(line), line
    assert 300 < refused < 1500


@pytest.mark.parametrize(
    "line",
    [
        b"", b"nul", b"01", b"1.", b".5", b"1e", b"+1", b"[1,]", b'{"a" 1}', b'{"a":1,}', b'{a:1}', b"[1 2]",
        b'"\\x"', b'"\\u12"', b'"\\ud800"', b'"\\udc00"', b'"\\u0000"', b'"a', b'"\xc0\x80"', b'"\xed\xa0\x80"',
        b"NaN", b"Infinity", b"1e999", b"9" * 30, b"[" * 33 + b"]" * 33, b"[" * 100_000, b"{}x", b'"\\',
    ],
    ids=range(28),
)  # fmt: skip
def test_what_is_no_json_or_too_much_is_refused(driver, line):
    assert said_by(driver, [line])[0].startswith(b"refused: ")


def test_a_text_is_bounded_and_stays_utf8(driver):
    (answer,) = said_by(driver, [json.dumps("é" * 5000, ensure_ascii=False).encode()])
    assert json.loads(answer) == "é" * 1000


def test_digests_are_those_of_the_standard_library(driver):
    lines = [bytes([33 + k % 90]) * k for k in (*range(130), 1000, 65_537)]
    for line, answer in zip(lines, said_by(driver, lines, "digest"), strict=True):
        assert answer.decode() == f"{hashlib.sha256(line).hexdigest()} {zlib.crc32(line):08x}"


# ------------------------------------------------------------------ by hand and under an agent
@pytest.mark.mpi
@EACH
def test_one_result_by_hand_and_under_any_partition_and_it_is_numpys(folder, tmp_path):
    program = folder / "program"
    digest, grid = alone(24, 12)
    for ranks in (1, 3):
        found = by_hand(program, "--set", "grid=24", "--set=iterations=12", "-v", ranks=ranks)
        assert found == ("12", str(ranks), "grid=24, iterations=12", digest[:16])
    given = task(("ada", 2, 17), ("bob", 1, 7), parameters={"grid": 24, "iterations": 12})
    code, events, said = asked(
        program, given | {"output": str(tmp_path / "out"), "save": True}, tmp_path, ranks=3
    )
    assert code == 0, said
    words = ["ready", *["progress"] * 11, *["rows"] * 3, "result", "done"]
    assert [event["event"] for event in events] == words
    assert events[0] == {
        "event": "ready", "protocol": 1, "program": "heat", "version": "1", "ranks": 3,
    }  # fmt: skip
    result = events[-2]
    assert (result["iterations"], result["sha256"]) == (12, digest)
    assert [host["host"] for host in result["hosts"]] == ["ada", "bob"]
    digests = {}
    for event in events[-5:-2]:
        for k in range(len(event["digests"]) // 8):
            digests[event["first_row"] + k] = event["digests"][8 * k : 8 * k + 8]
    assert digests == {k: f"{zlib.crc32(row.tobytes()):08x}" for k, row in enumerate(grid)}
    assert [(e["first_row"], e["host"], e["rank"]) for e in events[-5:-2]] == [
        (0, "ada", 0), (9, "ada", 1), (17, "bob", 2),
    ]  # fmt: skip
    (kept,) = map(Path, result["files"])
    assert (np.load(kept) == grid).all()
    assert [path.name for path in kept.parent.iterdir()] == ["result.npy"]


@pytest.mark.mpi
@pytest.mark.more
@EACH
def test_it_measures_its_kernel_once_for_each_size(folder, tmp_path):
    given = task(mode="calibrate", sizes=[5, 50], implementation="compiled")
    code, events, said = asked(folder / "program", given, tmp_path)
    assert code == 0, said
    assert [event["event"] for event in events] == ["ready", "calibration", "calibration", "done"]
    assert [event["rows"] for event in events[1:3]] == [5, 50]
    assert all(event["seconds_per_point"] > 0 and event["error"] >= 0 for event in events[1:3])


REFUSALS = [
    ({"schema": "apples.task/2"}, "task-invalid", ["schema"]),
    ({"mode": "dream"}, "task-invalid", ["mode", "'dream'"]),
    ({"mode": "a\n\x1b[31m"}, "task-invalid", ["mode", "'a  [31m'"]),
    ({"parameters": []}, "task-invalid", ["parameters"]),
    ({"save": True}, "task-invalid", ["save"]),
    ({"output": 3}, "task-invalid", ["output"]),
    ({"progress_seconds": -1}, "task-invalid", ["progress_seconds"]),
    ({"partition": []}, "task-invalid", ["partition "]),
    ({"partition": [{"host": "a"}]}, "partition-invalid", ["partition[0]", "host, ranks, first_row, rows"]),
    ({"partition": partition(("a", 1, 5)) * 2}, "partition-invalid",
     ["partition[1]", "5 rows", "row 0", "1 ranks", "row 5"]),
    ({"partition": partition(("a", 6, 5))}, "partition-invalid", ["partition[0]", "5 rows", "6 ranks"]),
    ({"partition": partition(("a", 1, True))}, "partition-invalid", ["partition[0]"]),
    ({"partition": partition((7, 1, 24))}, "partition-invalid", ["partition[0]"]),
    ({"partition": [{**partition(("ada", 1, 24))[0], "threads": 0}]}, "task-invalid", ["threads"]),
    ({"mode": "calibrate", "sizes": [0]}, "task-invalid", ["sizes"]),
]  # fmt: skip


def refusal(events, code, values):
    """Check that the only event is one printable line of an error with this code that names these values."""
    (event,) = events
    message = event["message"]
    assert event == {"event": "error", "message": message, "rank": 0, "code": code}
    assert message.isprintable()
    assert [value for value in values if value not in message] == [], message


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.parametrize(("change", "code", "values"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_task_that_does_not_say_what_it_should_is_refused(
    scaffolded, tmp_path, change, code, values
):
    given = task() | change
    exit_code, events, said = asked(scaffolded("c") / "program", given, tmp_path)
    assert (exit_code, said) == (2, "")
    refusal(events, code, values)
    if change.get("partition", [{"host": ""}])[0:1] != partition((7, 1, 24)):
        with pytest.raises(TaskError) as raised:
            read_task(json.dumps(given))
        assert raised.value.code == code, "a program in Python names the same condition"


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("text", "code", "values"),
    [
        (b"", "task-not-json", ["byte 0"]),
        (b"{", "task-not-json", ["byte 1"]),
        (b'{"schema": "\xff"}', "task-not-json", ["UTF-8", "byte 12"]),
        (b"[" * 1_000_000, "task-not-json", ["byte 33"]),
        (b'{"a": 1} \x00', "task-not-json", ["byte 0"]),
        (json.dumps(task(("ada", 2, 24))).encode(), "program-ranks-differ", ["2 ranks", "MPI has 1"]),
        (json.dumps(task(("ada", 1, 20))).encode(), "program-rows-differ", ["20 rows", "grid is 24"]),
        (json.dumps(task(parameters={"grid": 24})).encode(), "parameter-range", ["'iterations'"]),
    ],
    ids=range(8),
)  # fmt: skip
def test_a_hostile_task_is_one_line(scaffolded, tmp_path, text, code, values):
    exit_code, events, said = asked(scaffolded("c") / "program", text, tmp_path)
    assert (exit_code, said) == (2, "")
    refusal(events, code, values)


@pytest.mark.mpi
@EACH
def test_what_is_wrong_by_hand_is_one_line(folder, tmp_path):
    program = folder / "program"
    for arguments, code, values in (
        (
            ["--set", "gird=5"],
            "program-parameter-unknown",
            ["gird=5", "'gird'", "grid, iterations"],
        ),
        (["--set", "grid=x"], "parameter-type", ["grid=x"]),
        (["--set=grid"], "parameter-invalid", ["--set grid"]),
        (["-v", "--set"], "parameter-invalid", ["--set "]),
        (["--set", f"grid={'0' * 2000}9"], "parameter-too-long", [f"grid={'0' * 495}..", "2000"]),
        (["--set", "grid=0"], "parameter-range", ["'grid'"]),
    ):
        done = called([program, *arguments])
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("heat: ")
        assert line.endswith(f" [{code}]")
        assert [value for value in values if value not in line] == [], line
    done = called([program], APPLES_TASK=str(tmp_path / "none"))
    refusal([json.loads(done.stdout)], "task-unreadable", [str(tmp_path / "none")])
    assert done.returncode == 2


@pytest.mark.mpi
@EACH
def test_a_program_that_is_said_to_be_malleable_refuses(folder, tmp_path):
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task()))
    done = called([folder / "program"], APPLES_TASK=str(path), APPLES_MALLEABLE="/nowhere")
    assert done.returncode == 2
    refusal([json.loads(done.stdout)], "malleable-unsupported", ["malleable = true"])


def changed(scaffolded, tmp_path, old, by):
    """Build C's scaffold with another text in place of one in it."""
    folder = tmp_path / "changed"
    shutil.copytree(scaffolded("c"), folder, ignore=shutil.ignore_patterns("program"))
    text = (folder / "program.c").read_text()
    assert old in text
    (folder / "program.c").write_text(text.replace(old, by))
    return built(folder, flags="-O0 -Wno-unused")


@pytest.mark.mpi
def test_scaffold_in_c_links_the_mathematical_library(scaffolded, tmp_path):
    calls = "    if (erf((double)argc) < 0) return 3;\n    apples_begin("
    header = "#include <stdlib.h>"
    text = (scaffolded("c") / "program.c").read_text()
    shutil.copytree(scaffolded("c"), tmp_path / "math", ignore=shutil.ignore_patterns("program"))
    text = text.replace(header, f"#include <math.h>\n{header}").replace("    apples_begin(", calls)
    assert calls in text
    (tmp_path / "math" / "program.c").write_text(text)
    program = built(tmp_path / "math")
    assert called([program, "--set", "grid=24", "--set", "iterations=2"]).returncode == 0


@pytest.mark.mpi
@pytest.mark.more
def test_what_goes_wrong_in_the_program_is_an_event_and_ends_all_ranks(scaffolded, tmp_path):
    sweep, result = "        sweep(old, new, rows, n);\n", "apples_result(old + n + 3, rows, n"
    failed = {"event": "error", "message": 'row 7 is "bad"', "rank": 0}  # the program's own words
    for old, by, code, named, values in (
        (sweep, sweep + 'if (apples_iteration() == 3) apples_fail("row 7 is \\"bad\\"");\n', 1, "", []),
        (sweep, sweep + "if (apples_iteration() == 3) exit(0);\n", 1, "program-result-missing", []),
        (result, "apples_result(old + n + 3, rows + 2, n", 2, "result-shape", ["26 rows", "rank 0", "24"]),
        ("    apples_end();\n", "", 1, "end-missing", []),
        ("apples_exchange(old, row_bytes, 1)", "apples_exchange(old, row_bytes, 25)", 2,
         "array-shape", ["25 rows", "208 bytes", "24 rows"]),
        ('apples_integer("grid")', 'apples_integer("gird")', 2,
         "program-parameter-unknown", ["'gird'", "grid, iterations"]),
        ("apples_exchange(old, row_bytes, 1)", 'apples_allreduce(1.0, "mean")', 2,
         "operation-unknown", ["'mean'", "max, min, sum"]),
    ):  # fmt: skip
        program = changed(scaffolded, tmp_path, old, by)
        ended, events, _ = asked(program, task(), tmp_path)
        assert ended == code, by
        if named:
            refusal(events[-1:], named, values)
        else:
            assert events[-1] == failed
        three = task(("ada", 2, 17), ("bob", 1, 7))
        if "rows" not in by:
            ended, events, _ = asked(program, three, tmp_path, ranks=3)
            assert ended != 0
            assert "done" not in {event["event"] for event in events}
        shutil.rmtree(tmp_path / "changed")


@pytest.mark.mpi
@pytest.mark.more
def test_text_without_a_newline_hides_no_event_of_a_program_in_c(scaffolded, tmp_path):
    says = 'printf("Reading ... "); fflush(stdout);\n'
    begin = "    apples_begin("
    program = changed(scaffolded, tmp_path, begin, f"    {says}{begin}")
    ended, events, told = asked(program, task(), tmp_path)
    assert ended == 0, told
    assert events[0]["event"] == "ready"


EARLY = """
    apples_exchange(old, row_bytes, 1);
    apples_allreduce(1.0, "sum");
"""


@pytest.mark.mpi
@pytest.mark.more
def test_what_is_exchanged_before_the_loop_is_not_measured(scaffolded, tmp_path):
    loop = "    while (apples_iterate()) {\n"
    code, events, said = asked(changed(scaffolded, tmp_path, loop, EARLY + loop), task(), tmp_path)
    assert code == 0, said
    (host,) = events[-2]["hosts"]
    measured = host["compute_seconds"] + host["communicate_seconds"]
    assert measured <= events[-2]["seconds"] + 1e-5  # both are rounded to microseconds


STALLS = """
        if (apples_iteration() % 100 == 60)
            usleep(200000);
"""


@pytest.mark.mpi
def test_a_program_in_c_reports_its_times_without_spikes_too(scaffolded, tmp_path):
    loop = "    while (apples_iterate()) {\n"
    program = changed(scaffolded, tmp_path, loop, loop + STALLS)
    many = {**task(), "parameters": {"grid": 24, "iterations": 300}, "progress_seconds": 0.1}
    code, events, said = asked(program, many, tmp_path)
    assert code == 0, said
    result = events[-2]
    (host,) = result["hosts"]
    assert host["compute_seconds"] > 0.6
    assert host["clipped_compute_seconds"] < host["compute_seconds"] - 0.4
    assert result["clipped_seconds"] < result["seconds"] - 0.4
    assert host["cpu_wait_seconds"] >= 0


SPEAKS = """
    if (!setlocale(LC_ALL, "")) return 3;
    apples_begin("""


@pytest.mark.mpi
@pytest.mark.more
def test_numbers_have_a_point_in_a_program_that_speaks_another_language(scaffolded, tmp_path):
    if not shutil.which("localedef"):
        pytest.skip("no localedef")
    called(["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"])
    if not (tmp_path / "de_DE.UTF-8" / "LC_NUMERIC").exists():
        pytest.skip("no source of the locale de_DE")
    program = changed(scaffolded, tmp_path, "    apples_begin(", SPEAKS)
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task(parameters={**GRID, "omega": 1.5})))
    german = {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE.UTF-8"}
    done = called([program], APPLES_TASK=str(path), **german)
    assert done.returncode == 0, done.stdout
    result, ended = (json.loads(line) for line in done.stdout.split("\n\n")[-2:])
    assert (result["sha256"], ended) == (alone(24, 9)[0], {"event": "done"})
    done = called([program, "--set", "grid=24", "--set", "iterations=9"], **german)
    assert done.returncode == 0, done.stderr
    assert alone(24, 9)[0][:16] in done.stdout


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("call", ["apples_host()", 'apples_allreduce(1.0, "sum")'])
def test_a_call_before_the_task_is_one_line(scaffolded, tmp_path, call):
    begin = "    apples_begin("
    program = changed(scaffolded, tmp_path, begin, f"    {call};\n{begin}")
    code, events, said = asked(program, task(), tmp_path)
    assert (code, said) == (2, "")
    refusal(events, "call-order", ["apples_begin"])


USES_ALL = """
        apples_residual(apples_allreduce((double)(rows * 10 + apples_iteration()), "max"));
        long first, count;
        apples_communicating();
        MPI_Barrier(apples_comm());
        apples_computing();
        if (apples_iteration() == 4) {
            const char *last = apples_layout(apples_size() - 1, &first, &count);
            if (apples_above() == MPI_PROC_NULL) {  /* of one rank: lines of several may run into one another */
                printf("%s %s %d %s %ld", apples_host(), apples_implementation(), apples_below(), last, first);
                printf(" %ld %s %d %g %s\\n", count, apples_output(), apples_save(),
                       apples_number("omega"), apples_text("name"));
            }
            break;
        }
"""


@pytest.mark.mpi
@pytest.mark.more
def test_what_a_task_says_comes_to_the_program_and_who_leaves_has_done_the_iteration(
    scaffolded, tmp_path
):
    sweep = "        sweep(old, new, rows, n);\n"
    program = changed(scaffolded, tmp_path, sweep, sweep + USES_ALL)
    parameters = {**GRID, "omega": 1.5, "name": 'é "x"'}
    given = task(("ada", 2, 17), ("bob", 1, 7), parameters=parameters, output=str(tmp_path))
    given["implementations"] = {"ada": "fast", "bob": "slow"}
    path = tmp_path / "task.json"
    path.write_text(json.dumps(given))
    done = called([*mpiexec(3), program], APPLES_TASK=str(path))
    assert done.returncode == 0, done.stderr
    assert f'ada fast 1 bob 17 7 {tmp_path} 0 1.5 é "x"' in done.stdout.splitlines()
    (result,) = [json.loads(x) for x in done.stdout.splitlines() if '"event": "result"' in x]
    assert (result["iterations"], result["residual"]) == (5, 94.0)


OTHERS_WORK = """
#include <pthread.h>
static void *other(void *nothing) /* is on the processor for .02 s */
{
    struct timespec now;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (!now.tv_sec && now.tv_nsec < 20000000);
    return nothing;
}
int main("""
ANOTHER_WORKS = """
        pthread_t thread;
        pthread_create(&thread, NULL, other, NULL);
        pthread_join(thread, NULL);
        apples_residual(apples_threads());
"""


@pytest.mark.more
@pytest.mark.mpi
def test_threads_are_told_and_the_processor_time_of_all_of_them_is_counted(scaffolded, tmp_path):
    sweep = "        sweep(old, new, rows, n);\n"
    folder = tmp_path / "threads"
    shutil.copytree(scaffolded("c"), folder, ignore=shutil.ignore_patterns("program"))
    text = (folder / "program.c").read_text()
    assert sweep in text
    text = text.replace("int main(", OTHERS_WORK).replace(sweep, sweep + ANOTHER_WORKS)
    (folder / "program.c").write_text(text)
    program = built(folder, flags="-pthread")
    pieces = [{**partition(("ada", 1, 24))[0], "threads": 4}]
    code, events, said = asked(program, task(partition=pieces), tmp_path)
    assert code == 0, said
    result = events[-2]
    assert (result["residual"], result["sha256"]) == (4.0, alone(24, 9)[0])
    # Each thread runs until its own processor clock shows 0.02 s, so these bounds hold at any load.
    assert result["hosts"][0]["processor_seconds"] >= 9 * 0.02 / 4
    given = task(mode="calibrate", sizes=[10], implementation="compiled", threads=4)
    code, events, said = asked(program, given, tmp_path)
    assert code == 0, said
    assert events[1]["seconds_per_point"] * 10 * 24 >= 0.02


# ------------------------------------------------------------------ the agent's commands
@pytest.fixture
def own_folder(folder, tmp_path, monkeypatch):
    """A copy of a scaffold with its program built, and a state directory of its own."""
    shutil.copytree(folder, tmp_path / "heat")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "heat")
    return tmp_path / "heat"


SMALL = ("--set", "grid=200", "--weather", "static", "--json")


def check_ways(digest, *options):
    """Run a program planned and detached, verified as the sequential reference."""
    ran = command("apples", "run", "--verify", "full", *options, *SMALL)
    assert ran.code == 0, ran.err
    assert (ran.document["verified"], ran.document["result_sha256"]) == (True, digest)
    rows = [one["rows"] for one in ran.document["execution"]["hosts"]]
    assert (len(rows), sum(rows), rows[0] > rows[1]) == (2, 200, True)
    begun = command("apples", "run", "--detach", *options, *SMALL)
    assert begun.code == 0, begun.err
    ended = command("apples", "wait", begun.document["id"], "--json")
    assert ended.code == 0, ended.err
    assert (ended.document["verified"], ended.document["result_sha256"]) == (True, digest)


@pytest.mark.mpi
@pytest.mark.more
@EACH
@pytest.mark.usefixtures("own_folder")
def test_it_runs_planned_and_detached_and_is_verified():
    check_ways(alone(200, 100)[0])


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("language", ["c"])
@pytest.mark.usefixtures("own_folder")
def test_a_resize_is_refused_in_one_line_and_changes_nothing():
    begun = command("apples", "run", "--detach", "--set", "iterations=100000000", *SMALL)
    assert begun.code == 0, begun.err
    job = begun.document["id"]
    refused = command("apples", "resize", job, "--on", "here")
    assert refused.code != 0
    (code,) = refused.error_codes
    assert code == "run-not-resizable"
    assert job in refused.err
    assert command("apples", "jobs", job, "--json").document["state"] in ("starting", "running")
    assert command("apples", "cancel", job).code == 0


@pytest.mark.mpi
@pytest.mark.more
def test_a_template_that_says_malleable_is_refused_in_one_line(scaffolded, tmp_path, monkeypatch):
    shutil.copytree(scaffolded("c"), tmp_path / "heat")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "heat")
    template = tmp_path / "heat" / "template.toml"
    template.write_text(
        template.read_text().replace('version = "1"', 'version = "1"\nmalleable = true')
    )
    begun = command("apples", "run", "--detach", *SMALL)
    said = begun.err
    if begun.code == 0:
        ended = command("apples", "wait", begun.document["id"])
        assert ended.code == 5
        said = ended.err
    assert "malleable-unsupported" in said


@pytest.mark.mpi
@pytest.mark.more
@EACH
def test_it_keeps_the_protocol(folder):
    small, telling = (
        ProblemSize({"grid": rows, "iterations": iterations}, rows)
        for rows, iterations in ((24, 6), (600, 20))
    )
    checks = check_program({"compiled": (str(folder / "program"),)}, small, telling)
    assert [check for check in checks if not check.ok] == []


@pytest.mark.more
def test_a_program_that_was_not_built_is_one_line(tmp_path, monkeypatch):
    new("heat", tmp_path, kind="c")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "heat")
    ran = command("apples", "run", "--weather", "static")
    assert ran.code == 4
    assert "./program" in ran.err


# ------------------------------------------------------------------ other MPIs
def other(name):
    """Return marks that skip where Debian's packages of an MPI are not installed."""
    missing = [word for word in (f"mpicc.{name}", f"mpiexec.{name}") if not shutil.which(word)]
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"no {missing}"))


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("mpi", [other("mpich"), other("openmpi")])
@EACH
def test_debians_mpi_serves_as_well(language, mpi, tmp_path, monkeypatch):
    """By hand, with the unequal rows of a task, and under an agent: Open MPI by the page's launcher."""
    folder = new("heat", tmp_path, kind=language)[0].parent
    fortran = f"mpifort.{mpi}" if shutil.which(f"mpifort.{mpi}") else "gfortran"
    program = built(folder, mpicc=f"mpicc.{mpi}", fc=fortran)
    launcher = f"mpiexec.{mpi}"
    digest, _ = alone(24, 9)
    settings = ("--set", "grid=24", "--set", "iterations=9")
    assert by_hand(program, *settings, ranks=3, launcher=launcher)[-1] == digest[:16]
    unequal = task(("ada", 2, 20), ("bob", 1, 4))
    code, events, said = asked(program, unequal, tmp_path, ranks=3, launcher=launcher)
    assert code == 0, said
    assert (events[-2]["sha256"], events[-1]) == (digest, {"event": "done"})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    if mpi == "mpich":
        check_ways(alone(200, 100)[0])
        return
    ran = command("apples", "run", "--verify", "none", *SMALL)
    assert ran.code == 5
    assert "program-ranks-differ" in ran.err
    shown = re.search(
        r"^```python\n# openmpi\.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    by_root = shown[1].replace('"--oversubscribe"', '"--oversubscribe", "--allow-run-as-root"')
    Path("openmpi.py").write_text(by_root if os.getuid() == 0 else shown[1])
    check_ways(alone(200, 100)[0], "--actuator", "openmpi.py:OpenMPI")


def test_no_test_here_inherits_a_task():
    assert "APPLES_TASK" not in os.environ

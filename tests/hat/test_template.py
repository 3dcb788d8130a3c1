"""A template says what an application is; what it leaves out is assumed by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_problem

from hat import ApplicationTemplate, DocumentError, active_set, dump, parse, schema

HEAD = 'name = "heat"\nprogram = ["{python}", "heat.py"]\n'

JACOBI = (
    HEAD
    + """
[parameters]
grid = {default = 2000, minimum = 3, maximum = 10000}
iterations = {default = 500, minimum = 1}
source = {default = "", description = "File with a source term."}
weight = {default = 1.0, minimum = 0, maximum = 2}
[structure]
rows = "grid"
columns = "grid"
iterations = "iterations"
[[data]]
name = "old"
[[data]]
name = "new"
[[data]]
name = "source"
when = "source"
[[data]]
name = "table"
element_bytes = 4
elements = "3*grid"
distribution = "replicated"
[[task]]
name = "sweep"
data = ["old", "new", "source"]
[[implementation]]
name = "numpy"
task = "sweep"
[[implementation]]
name = "numba"
platforms = ["x86_64*"]
requires = {modules = ["numba"], commands = ["cc"]}
seconds_per_point = 2e-9
measured = {"x86_64" = 1e-9}
program = ["./heat", "--grid={grid}"]
[[interface]]
from = "sweep"
to = "sweep"
bytes = "8*grid"
messages = 2
[active_set]
ada = "numpy"
"""
)


def template(text=JACOBI):
    return parse(text, ApplicationTemplate, source="t")


def problems(text):
    with pytest.raises(DocumentError) as caught:
        template(text)
    return caught.value.problems


def test_a_bound_template_has_the_numbers_of_the_model():
    heat = template().bind({"grid": "100"})
    assert (heat.rows, heat.columns, heat.iterations) == (100, 100, 500)
    assert (heat.arrays, heat.element_bytes, heat.point_bytes) == (2, 8, 16)
    assert (heat.border_bytes, heat.messages) == (800, 2)
    assert heat.fixed_bytes == 4 * 3 * 100
    assert heat.parameters == {"grid": 100, "iterations": 500, "source": "", "weight": 1.0}


@given(st.integers(3, 10_000), st.integers(1, 10_000))
def test_strip_memory_is_the_papers_formula(grid, rows):
    heat = template(HEAD).bind({"grid": grid})
    assert heat.strip_memory(rows) == heat.arrays * (rows + 2) * grid * heat.element_bytes


def test_a_third_array_counts_only_when_its_parameter_is_set():
    assert template().bind({"source": "sun.npy"}).arrays == 3
    assert template().bind({"source": ""}).arrays == 2


def test_a_vector_field_takes_as_much_as_its_elements():
    text = HEAD + '[[data]]\nname = "v"\nelement_bytes = 4\nelements = "3*grid*grid"\n'
    heat = template(text).bind({"grid": 50})
    assert (heat.arrays, heat.point_bytes, heat.border_bytes) == (1, 12, 4 * 50)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"grid": "0"}, (None, "grid", "value-range", "3", "0")),
        ({"grid": 99_999}, (None, "grid", "value-range", "10000", "99999")),
        ({"grid": "many"}, (None, "grid", "value-type", "'many'")),
        ({"grid": "2.5"}, (None, "grid", "value-type", "'2.5'")),
        ({"grid": "nan"}, (None, "grid", "value-range", "'nan'")),
        (
            {"grid": "9" * 5000},
            (
                None,
                "grid",
                "value-range",
                "'99999999999999999999999999999..99999999999999999999999999999'",
            ),
        ),
        ({"grid": "1e30"}, (None, "grid", "value-range", "1e18", "'1e30'")),
        ({"weight": "x"}, (None, "weight", "value-type", "'x'")),
        ({"weight": "2.1"}, (None, "weight", "value-range", "2", "2.1")),
        ({"gird": "3"}, (None, "gird", "parameter-unknown", "grid")),
        (
            {"source": "\x1b[2J"},
            (None, "source", "value-invalid", "4096", "'\\x1b[2J'"),
        ),
    ],
)
def test_a_bad_parameter_is_named_with_its_range(given_, expected):
    with pytest.raises(DocumentError) as caught:
        template().bind(given_)
    (problem,) = caught.value.problems
    assert problem.file == "--set"
    assert_problem(problem, expected)


@pytest.mark.parametrize("value", ["2e3", "2000", 2000, 2000.0, " 2000 "])
def test_whole_numbers_are_taken_in_every_notation(value):
    grid = template().bind({"grid": value}).parameters["grid"]
    assert (grid, type(grid)) == (2000, int)


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        ('rows = "grid-2000"', (None, "structure.rows", "value-range", "grid-2000", "0", "1")),
        ('rows = "grid/3"', (None, "structure.rows", "value-type", "grid/3", "666.6666666666666")),
        ('columns = "1//(grid-2000)"', (None, "structure.columns", "expression-undefined",
                                        "1//(grid-2000)", "2000")),
        ('rows = "source"', (None, "structure.rows", "parameter-missing", "source")),
    ],
)  # fmt: skip
def test_a_size_without_a_value_is_named(structure, expected):
    with pytest.raises(DocumentError) as caught:
        template(JACOBI.replace('rows = "grid"\ncolumns = "grid"', structure)).bind()
    assert caught.value.problems[0].file == "--set"
    assert_problem(caught.value.problems[0], expected)


def test_a_parameter_without_a_default_must_be_set():
    heat = template(HEAD + "[parameters.grid]\nminimum = 1\n")
    with pytest.raises(DocumentError) as caught:
        heat.bind()
    assert_problem(caught.value.problems[0], (None, "grid", "parameter-missing", "grid=VALUE"))
    assert heat.bind({"grid": "4"}).iterations == 1


def test_an_array_for_every_condition_leaves_none():
    text = (
        HEAD
        + '[parameters]\ngrid = {default = 9}\nx = {default = 0}\n[[data]]\nname="a"\nwhen="x"'
    )
    with pytest.raises(DocumentError) as caught:
        template(text).bind()
    assert_problem(caught.value.problems[0], (None, "data", "data-missing"))


def test_name_and_program_are_enough_and_all_else_is_named():
    heat = template(HEAD)
    assert [assumption.field for assumption in heat.missing()] == [
        "parameters",
        "data",
        "task",
        "implementation",
        "interface",
        "structure.rows",
        "structure.columns",
        "structure.iterations",
        "structure.model",
        "implementation[0].seconds_per_point",
    ]
    assert {name: one.default for name, one in heat.parameters.items()} == {
        "grid": 1000,
        "iterations": 100,
    }
    bound = heat.bind()
    assert (bound.rows, bound.iterations, bound.arrays, bound.element_bytes) == (1000, 100, 2, 8)
    assert (bound.border_bytes, bound.messages, bound.model) == (8000, 1, "strip")


@pytest.mark.parametrize("name", ["mpirun", "orterun", "prun", "aprun", "srun", "mpiexec.hydra"])
def test_a_program_that_starts_ranks_itself_is_refused(name):
    text = f'name = "x"\nprogram = ["/opt/mpi/bin/{name}", "-n", "2", "./x"]'
    with pytest.raises(DocumentError, match=f"the agent starts the ranks: leave {name} out"):
        parse(text, ApplicationTemplate)


@pytest.mark.parametrize(
    "program",
    [
        '["{python}", "mpirun.py"]',
        '["./prun.sh", "mpiexec"]',
        '["sh", "-c", "./run --with mpiexec"]',
    ],
)
def test_a_launcher_may_be_named_where_it_is_not_the_command(program):
    assert parse(f'name = "x"\nprogram = {program}', ApplicationTemplate).program


def test_a_full_template_misses_only_what_nobody_measured():
    assert [a.field for a in template().missing()] == [
        "structure.model",
        "implementation[0].seconds_per_point",
    ]


MISTAKES = {
    "no program": ('name = "x"', (1, "program", "field-missing")),
    "a shell's line": ('name = "x"\nprogram = "python x.py"',
                       (2, "program", "value-type", "'python x.py'")),
    "an empty program": ('name = "x"\nprogram = []',
                         (2, "program", "value-range", "0")),
    "a null byte": ('name = "x"\nprogram = ["a\\u0000b"]',
                    (2, "program[0]", "value-invalid", "'a\\x00b'")),
    "braces": ('name = "x"\nprogram = ["{a.b}"]',
               (2, "program[0]", "placeholder-invalid")),
    "a placeholder": ('name = "x"\nprogram = ["{pyton}"]',
                      (2, "program", "parameter-unknown", "pyton", "python")),
    "a launcher of MPI": (
        'name = "x"\nprogram = ["/usr/bin/mpiexec", "-n", "2", "./x"]',
        (2, "program[0]", "launcher-nested", "mpiexec")),
    "a launcher behind other commands": (
        HEAD + '[[implementation]]\nname = "fast"\nprogram = ["env", "-u", "A", "nice", "srun", "./x"]',
        (5, "implementation[0].program[4]", "launcher-nested", "srun")),
    "a launcher in a shell's line": (
        'name = "x"\nprogram = ["sh", "-c", "exec mpirun.openmpi ./x"]',
        (2, "program[2]", "launcher-nested", "mpirun.openmpi")),
    "a path as a name": ('name = "../x"\nprogram = ["x"]',
                         (1, "name", "value-invalid", "'../x'")),
    "an unknown parameter in a size": (
        HEAD + '[structure]\nrows = "gird"',
        (4, "structure.rows", "parameter-unknown", "gird", "grid")),
    "a size that is none": (
        HEAD + '[structure]\nrows = "grid."',
        (4, "structure.rows", "expression-invalid", "grid.")),
    "a huge power": (
        HEAD + '[[interface]]\nfrom = "sweep"\nto = "sweep"\nbytes = "10**10**10"',
        (6, "interface[0].bytes", "value-range", "10**10**10", "1e18")),
    "no grid to assume": (
        HEAD + "[parameters.n]\ndefault = 3",
        (1, "structure.rows", "parameter-unknown", "grid")),
    "a default out of range": (
        HEAD + "[parameters.grid]\ndefault = 0\nminimum = 1",
        (3, "parameters.grid", "value-range", "1", "0")),
    "a default of another kind": (
        HEAD + '[parameters.grid]\ndefault = "x"\nkind = "integer"',
        (3, "parameters.grid", "value-type", "'x'")),
    "a truth value": (
        HEAD + "[parameters.grid]\ndefault = true",
        (4, "parameters.grid.default", "value-type", "true")),
    "a range upside down": (
        HEAD + "[parameters.grid]\nminimum = 3\nmaximum = 2",
        (3, "parameters.grid", "value-range", "3 and 2")),
    "a range of text": (
        HEAD + '[parameters.grid]\ndefault = "x"\nminimum = 3',
        (3, "parameters.grid", "field-conflict")),
    "a reserved name": (
        HEAD + "[parameters]\ngrid = {}\nmax = {}",
        (5, "parameters.max", "name-reserved", "max")),
    "an unknown condition": (
        HEAD + '[[data]]\nname = "a"\nwhen = "grids"',
        (5, "data[0].when", "parameter-unknown", "grids", "grid")),
    "no grid array": (
        HEAD + '[[data]]\nname = "a"\ndistribution = "replicated"',
        (3, "data", "data-missing")),
    "unknown data": (
        HEAD + '[[data]]\nname = "a"\n[[task]]\nname = "t"\ndata = ["b"]',
        (7, "task[0].data", "data-unknown", "b")),
    "an unknown task": (
        HEAD + '[[task]]\nname = "sweep"\n[[implementation]]\nname = "i"\ntask = "sweap"',
        (7, "implementation[0].task", "task-unknown", "sweap", "sweep")),
    "an unknown sender": (
        HEAD + '[[task]]\nname = "sweep"\n[[interface]]\nfrom = "a"\nto = "sweep"',
        (6, "interface[0].from", "task-unknown", "a")),
    "an unknown implementation": (
        HEAD + '[[implementation]]\nname = "numpy"\n[active_set]\nada = "numby"',
        (6, "active_set.ada", "implementation-unknown", "numby", "numpy")),
    "a name twice": (
        HEAD + '[[implementation]]\nname = "i"\n[[implementation]]\nname = "i"',
        (6, "implementation[1].name", "name-repeated", "i")),
    "no cost": (
        HEAD + '[[implementation]]\nname = "i"\nmeasured = {x86 = 0}',
        (5, "implementation[0].measured.x86", "value-range", "0")),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_each_mistake_of_a_template_has_its_line(case):
    text, expected = MISTAKES[case]
    (problem,) = problems(text)
    assert problem.file == "t"
    assert_problem(problem, expected)


def test_a_template_survives_being_written_and_read():
    heat = template()
    again = parse(dump(heat), ApplicationTemplate)
    assert again == heat
    assert again.missing() == heat.missing()


def test_a_command_is_a_list_with_paths_of_the_templates_folder(tmp_path):
    (tmp_path / "heat").touch()
    (tmp_path / "heat.py").touch()
    values = template().bind({"grid": "9"}).parameters
    heat = template()
    assert heat.command("numpy", tmp_path, python="/py", parameters=values) == (
        "/py",
        str(tmp_path / "heat.py"),
    )
    assert heat.command("numba", tmp_path, python="/py", parameters=values) == (
        str(Path(tmp_path, "heat")),
        "--grid=9",
    )


def test_a_parameters_text_never_becomes_a_path_or_a_placeholder(tmp_path):
    (tmp_path / "sun").touch()
    text = 'name = "x"\nprogram = ["x", "{f}"]\n[parameters]\ngrid = {}\nf = {default = ""}'
    command = template(text).command("default", tmp_path, python="p", parameters={"f": "sun"})
    assert command == ("x", "sun")
    command = template(text).command("default", tmp_path, python="p", parameters={"f": "{python}"})
    assert command == ("x", "{python}")


def test_every_field_of_the_schema_is_explained():
    found = schema(ApplicationTemplate)
    for table in (found, *found["$defs"].values()):
        for name, field in table["properties"].items():
            assert field.get("title") or "$ref" in field, name
            assert field["description"].endswith("."), name
    assert found["required"] == ["name"]


BY_THREADS = """name = "heat"
program = ["heat"]
[[implementation]]
name = "ranks"
[[implementation]]
name = "threads"
threads = true
"""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            ("threads = true", "threads = 4"),
            (7, "implementation[1].threads", "value-type", "4"),
        ),
        (
            ("threads = true", "threads = true\nsweeps = 2"),
            (7, "implementation[1].threads", "field-conflict"),
        ),
        (
            ("threads = true", "threads = true\nrectangles = true"),
            (7, "implementation[1].threads", "field-conflict"),
        ),
        (
            ('name = "ranks"', 'name = "ranks"\nthreads = true'),
            (5, "implementation[0].threads", "implementation-missing"),
        ),
        (
            ("threads = true", 'threads = true\n[active_set]\nada = "threads"'),
            (9, "active_set.ada", "implementation-unsuitable", "threads"),
        ),
    ],
)
def test_an_implementation_by_threads_is_named_wrongly_in_one_line(changed, expected):
    with pytest.raises(DocumentError) as refused:
        parse(BY_THREADS.replace(*changed), ApplicationTemplate, source="t.toml")
    (problem,) = refused.value.problems
    assert problem.file == "t.toml"
    assert_problem(problem, expected)
    assert str(refused.value).count("\n") == 0


def test_the_active_set_of_several_hosts_has_no_implementation_by_threads():
    template = parse(BY_THREADS, ApplicationTemplate)
    hosts = {"ada": "", "bob": ""}
    for threads, name in ((False, "ranks"), (True, "threads")):
        found = active_set(template, hosts, lambda *_: True, threads=threads)
        assert [one.name for one in found.implementations.values()] == [name] * 2

"""A template says what an application is; what it leaves out is assumed by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    return str(caught.value).split("\n")


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
    ("given_", "line"),
    [
        ({"grid": "0"}, "--set: grid: must be at least 3 (is 0)"),
        ({"grid": 99_999}, "--set: grid: must be at most 10000 (is 99999)"),
        ({"grid": "many"}, "--set: grid: must be a whole number (is 'many')"),
        ({"grid": "2.5"}, "--set: grid: must be a whole number (is '2.5')"),
        ({"grid": "nan"}, "--set: grid: must be a finite number (is 'nan')"),
        (
            {"grid": "9" * 5000},
            f"--set: grid: must be a finite number (is '{'9' * 29}..{'9' * 29}')",
        ),
        ({"grid": "1e30"}, "--set: grid: must be at most 1e18 (is '1e30')"),
        ({"weight": "x"}, "--set: weight: must be a number (is 'x')"),
        ({"weight": "2.1"}, "--set: weight: must be at most 2 (is 2.1)"),
        ({"gird": "3"}, "--set: gird: there is no such parameter: did you mean 'grid'?"),
        (
            {"source": "\x1b[2J"},
            "--set: source: must be text of one line, at most 4096 characters (is '\\x1b[2J')",
        ),
    ],
)
def test_a_bad_parameter_is_named_with_its_range(given_, line):
    with pytest.raises(DocumentError) as caught:
        template().bind(given_)
    assert str(caught.value) == line


@pytest.mark.parametrize("value", ["2e3", "2000", 2000, 2000.0, " 2000 "])
def test_whole_numbers_are_taken_in_every_notation(value):
    grid = template().bind({"grid": value}).parameters["grid"]
    assert (grid, type(grid)) == (2000, int)


@pytest.mark.parametrize(
    ("structure", "line"),
    [
        ('rows = "grid-2000"', "structure.rows: 'grid-2000' is 0: must be at least 1"),
        ('rows = "grid/3"', "structure.rows: 'grid/3' is 666.6666666666666: must be a whole number"),
        ('columns = "1//(grid-2000)"', ("structure.columns: '1//(grid-2000)' divides by zero"
         " at grid = 2000")),
        ('rows = "source"', "structure.rows: 'source' needs a value of 'source'"),
    ],
)  # fmt: skip
def test_a_size_without_a_value_is_named(structure, line):
    with pytest.raises(DocumentError) as caught:
        template(JACOBI.replace('rows = "grid"\ncolumns = "grid"', structure)).bind()
    assert str(caught.value).split("\n")[0] == f"--set: {line}"


def test_a_parameter_without_a_default_must_be_set():
    heat = template(HEAD + "[parameters.grid]\nminimum = 1\n")
    with pytest.raises(DocumentError, match=r"^--set: grid: has no default: set grid=VALUE$"):
        heat.bind()
    assert heat.bind({"grid": "4"}).iterations == 1


def test_an_array_for_every_condition_leaves_none():
    text = (
        HEAD
        + '[parameters]\ngrid = {default = 9}\nx = {default = 0}\n[[data]]\nname="a"\nwhen="x"'
    )
    with pytest.raises(DocumentError, match="data: no grid array is left"):
        template(text).bind()


def test_name_and_program_are_enough_and_all_else_is_named():
    heat = template(HEAD)
    assert [str(assumption) for assumption in heat.missing()] == [
        "parameters: grid (1000) and iterations (100)",
        "data: two grid arrays of 8 bytes a point",
        "task: one task, sweep, that talks to neighbours",
        "implementation: one, default, for any platform",
        "interface: one row of elements per border, in one message",
        "structure.rows: grid",
        "structure.columns: grid",
        "structure.iterations: iterations",
        "structure.model: strip",
        "implementation[0].seconds_per_point: the host list's, or a calibration",
    ]
    bound = heat.bind()
    assert (bound.rows, bound.iterations, bound.arrays, bound.element_bytes) == (1000, 100, 2, 8)
    assert (bound.border_bytes, bound.messages, bound.model) == (8000, 1, "strip")


def test_a_full_template_misses_only_what_nobody_measured():
    assert [a.field for a in template().missing()] == [
        "structure.model",
        "implementation[0].seconds_per_point",
    ]


MISTAKES = {
    "no program": ('name = "x"', "t:1: program: is missing"),
    "a shell's line": ('name = "x"\nprogram = "python x.py"',
                       "t:2: program: must be a list in [ ] (is 'python x.py')"),
    "an empty program": ('name = "x"\nprogram = []',
                         "t:2: program: must have at least an entry (has 0)"),
    "a null byte": ('name = "x"\nprogram = ["a\\u0000b"]',
                    "t:2: program[0]: must have the form [^\\x00-\\x1f\\x7f]* (is 'a\\x00b')"),
    "braces": ('name = "x"\nprogram = ["{a.b}"]',
               "t:2: program[0]: braces must enclose a name, as in {python}"),
    "a placeholder": ('name = "x"\nprogram = ["{pyton}"]',
                      "t:2: program: there is no parameter 'pyton': did you mean 'python'?"),
    "a path as a name": ('name = "../x"\nprogram = ["x"]',
                         "t:1: name: must have the form [A-Za-z0-9][A-Za-z0-9._-]* (is '../x')"),
    "an unknown parameter in a size": (
        HEAD + '[structure]\nrows = "gird"',
        "t:4: structure.rows: there is no parameter 'gird': did you mean 'grid'?"),
    "a size that is none": (
        HEAD + '[structure]\nrows = "grid."',
        "t:4: structure.rows: 'grid.' is no size expression"),
    "a huge power": (
        HEAD + '[[interface]]\nfrom = "sweep"\nto = "sweep"\nbytes = "10**10**10"',
        "t:6: interface[0].bytes: '10**10**10' is larger than 1e18"),
    "no grid to assume": (
        HEAD + "[parameters.n]\ndefault = 3",
        "t:1: structure.rows: there is no parameter 'grid'"),
    "a default out of range": (
        HEAD + "[parameters.grid]\ndefault = 0\nminimum = 1",
        "t:3: parameters.grid: default must be at least 1 (is 0)"),
    "a default of another kind": (
        HEAD + '[parameters.grid]\ndefault = "x"\nkind = "integer"',
        "t:3: parameters.grid: default must be a whole number (is 'x')"),
    "a truth value": (
        HEAD + "[parameters.grid]\ndefault = true",
        ("t:4: parameters.grid.default: must be a whole number or a number or text in quotes"
        " (is true)")),
    "a range upside down": (
        HEAD + "[parameters.grid]\nminimum = 3\nmaximum = 2",
        "t:3: parameters.grid: minimum must be at most maximum (are 3 and 2)"),
    "a range of text": (
        HEAD + '[parameters.grid]\ndefault = "x"\nminimum = 3',
        "t:3: parameters.grid: text has no minimum and no maximum"),
    "a reserved name": (
        HEAD + "[parameters]\ngrid = {}\nmax = {}",
        "t:5: parameters.max: 'max' has a meaning of its own: rename it"),
    "an unknown condition": (
        HEAD + '[[data]]\nname = "a"\nwhen = "grids"',
        "t:5: data[0].when: there is no parameter 'grids': did you mean 'grid'?"),
    "no grid array": (
        HEAD + '[[data]]\nname = "a"\ndistribution = "replicated"',
        't:3: data: must have an entry with distribution = "strip"'),
    "unknown data": (
        HEAD + '[[data]]\nname = "a"\n[[task]]\nname = "t"\ndata = ["b"]',
        "t:7: task[0].data: there is no data structure 'b'"),
    "an unknown task": (
        HEAD + '[[task]]\nname = "sweep"\n[[implementation]]\nname = "i"\ntask = "sweap"',
        "t:7: implementation[0].task: there is no task 'sweap': did you mean 'sweep'?"),
    "an unknown sender": (
        HEAD + '[[task]]\nname = "sweep"\n[[interface]]\nfrom = "a"\nto = "sweep"',
        "t:6: interface[0].from: there is no task 'a'"),
    "an unknown implementation": (
        HEAD + '[[implementation]]\nname = "numpy"\n[active_set]\nada = "numby"',
        "t:6: active_set.ada: there is no implementation 'numby': did you mean 'numpy'?"),
    "a name twice": (
        HEAD + '[[implementation]]\nname = "i"\n[[implementation]]\nname = "i"',
        "t:6: implementation[1].name: 'i' is there twice"),
    "no cost": (
        HEAD + '[[implementation]]\nname = "i"\nmeasured = {x86 = 0}',
        "t:5: implementation[0].measured.x86: must be greater than 0 (is 0)"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_each_mistake_of_a_template_has_its_line(case):
    text, line = MISTAKES[case]
    assert problems(text) == [line]


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
    ("changed", "said"),
    [
        (
            ("threads = true", "threads = 4"),
            "t.toml:7: implementation[1].threads: must be true or false",
        ),
        (
            ("threads = true", "threads = true\nsweeps = 2"),
            (
                "t.toml:7: implementation[1].threads: is for a set of one host, which has no borders: sweeps says"
                " nothing there"
            ),
        ),
        (
            ("threads = true", "threads = true\nrectangles = true"),
            (
                "t.toml:7: implementation[1].threads: is for a set of one host, which has no borders: rectangles"
                " says nothing there"
            ),
        ),
        (
            ('name = "ranks"', 'name = "ranks"\nthreads = true'),
            (
                "t.toml:5: implementation[0].threads: is for a set of one host: an implementation by ranks, for"
                " several, is missing"
            ),
        ),
        (
            ("threads = true", 'threads = true\n[active_set]\nada = "threads"'),
            "t.toml:9: active_set.ada: 'threads' is by threads, for a set of one host: name one by ranks",
        ),
    ],
)
def test_an_implementation_by_threads_is_named_wrongly_in_one_line(changed, said):
    with pytest.raises(DocumentError) as refused:
        parse(BY_THREADS.replace(*changed), ApplicationTemplate, source="t.toml")
    assert said in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_the_active_set_of_several_hosts_has_no_implementation_by_threads():
    template = parse(BY_THREADS, ApplicationTemplate)
    hosts = {"ada": "", "bob": ""}
    for threads, name in ((False, "ranks"), (True, "threads")):
        found = active_set(template, hosts, lambda *_: True, threads=threads)
        assert [one.name for one in found.implementations.values()] == [name] * 2

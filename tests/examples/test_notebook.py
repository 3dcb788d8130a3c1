"""The notebook: its code cells are executed in order, as a kernel does, and what each shows is checked."""

import ast
import json
from html.parser import HTMLParser

import pytest
from commands import EXAMPLE

import apples

NOTEBOOK = EXAMPLE / "plan-and-run.ipynb"
CELLS = json.loads(NOTEBOOK.read_text())["cells"]


class Shown(HTMLParser):
    """The rows of the tables of an output, and how many images it has."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.images = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.rows += [[]] if tag == "tr" else []
        self.images += tag == "img"

    def handle_data(self, data):
        if self.rows:
            self.rows[-1].append(data)


def execute(source, names):
    """Execute the source of a cell; return the value of its last line, if that is an expression."""
    tree = ast.parse(source, NOTEBOOK.name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)  # noqa: S102 - our own notebook
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307 - likewise


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.chdir(EXAMPLE)
        names = {}
        return {
            cell["id"]: execute("".join(cell["source"]), names)
            for cell in CELLS
            if cell["cell_type"] == "code"
        }


def test_the_notebook_is_kept_without_outputs():
    for cell in CELLS:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    identities = [cell["id"] for cell in CELLS]
    assert len(set(identities)) == len(identities)


@pytest.mark.mpi
def test_every_result_shows_a_row_a_host_and_its_chart(shown):
    decision, result = shown["decision"], shown["result"]
    assert isinstance(decision, apples.PlanResult)
    assert isinstance(result, apples.RunResult)
    for value in (decision, result):
        output = Shown(value._repr_html_())
        assert [row[0] for row in output.rows[1:]] == list(value.rows)
        assert output.images == 1
    assert result.verified


@pytest.mark.mpi
def test_comparisons_show_a_column_a_plan(shown):
    for cell, names in (("comparison", ["balanced", "equal"]), ("fewer", ["balanced", "fewer"])):
        assert isinstance(shown[cell], apples.Comparison)
        output = Shown(shown[cell]._repr_html_())
        assert output.rows[0][-2:] == names
        assert {len(row) for row in output.rows[1:]} == {3}
    fewer = shown["fewer"].document()
    assert "bob" not in fewer["plans"][1]["hosts"]
    (bob,) = (one for one in fewer["hosts"] if one["host"] == "bob")
    assert bob["reasons"] == ["", "bob is maintained tonight"]


@pytest.mark.mpi
def test_the_last_cell_has_a_value_a_host(shown):
    assert len(shown["table"]) == len(shown["result"].rows)

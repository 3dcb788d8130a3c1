"""Messages counted on other machines of a lab, over ssh, with a library that is carried or compiled there."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from launch.message_counts.test_array_messages import PROGRAM, TEMPLATE, between

from apples import RunSpec
from apples.agent import prepare
from apples.launch import SOURCE, MessageCounts

pytestmark = [pytest.mark.mpi, pytest.mark.lab, pytest.mark.more]


@pytest.fixture
def run(lab, tmp_path, monkeypatch):
    """Run the program that exchanges halos on all hosts of the lab; return result, execution, looks and talk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "halos.py").write_text(PROGRAM.read_text())
    (tmp_path / "template.toml").write_text(TEMPLATE.replace("malleable = true\n", ""))
    monkeypatch.chdir(tmp_path)

    def ran(**settings):
        spec = RunSpec(
            lab.hosts, tmp_path / "template.toml", None, weather="static", verify=False, actuator="ssh",
            blueprint="blocked", count_messages=True,
            settings={"iterations": 60, "grid": 200, **settings},
        )  # fmt: skip
        seen, said, kept = [], [], []
        prepared = prepare(spec, talk=said.append)

        def follow(_, execution):
            kept.append(execution)
            return nullcontext(lambda _: seen.append(prepared.counts.read()))

        result = prepared.execute(follow=follow, talk=said.append)
        left = Path("/tmp").glob(f"apples-{prepared.connections.job}-*")  # noqa: S108 - where supervisors put it
        assert list(left) == []
        return result, kept[0], seen, said

    return ran


def held(result, execution):
    """Whether what was counted has all that the arrays say, between all hosts."""
    assert result.messages.source == "counted"
    assert set(result.messages.hosts) == {"ada", "bob", "far"}
    counted, arrays = between(result.messages), between(execution.array_messages.matrix())
    assert len(arrays) >= 4
    for pair, (messages, sent) in arrays.items():
        assert messages <= counted[pair][0]
        assert sent <= counted[pair][1]
    return True


def test_ranks_of_other_machines_count_and_are_read_while_they_run(run):
    result, execution, seen, _ = run(iterations=200, pause=0.1)
    assert held(result, execution)
    assert any(sum(map(sum, one.messages)) for one in seen)


def test_where_the_mpi_is_another_the_library_is_compiled_there(run, monkeypatch):
    carried = MessageCounts.carried
    monkeypatch.setattr(MessageCounts, "carried", lambda one: {**carried(one), "fits": "another"})
    result, execution, _, _ = run()
    assert held(result, execution)


def test_a_host_that_cannot_compile_says_why_and_the_run_goes_on_uncounted(
    run, monkeypatch, capfd
):
    carried, broken = (
        MessageCounts.carried,
        SOURCE.read_text().replace("MPI_Init(", "MPI_Init((", 1),
    )
    monkeypatch.setattr(
        MessageCounts, "carried", lambda one: {**carried(one), "fits": "another", "source": broken}
    )
    result, _, _, _ = run()
    assert result.outcome.iterations == 60
    assert result.messages.source == "arrays"
    said = capfd.readouterr().err.splitlines()
    notes = [line for line in said if line.startswith("note: ")]
    assert {line.split(":")[1].strip() for line in notes} == {"ada", "bob", "far"}

import subprocess
import sys

from apples.launch import interface_of, located, network, own_machine


def test_mpi_is_kept_on_the_interface_that_bears_an_address():
    assert interface_of("127.0.0.1") == "lo"
    assert network("127.0.0.2")["UCX_NET_DEVICES"] == "lo"
    assert network("198.51.100.1") == {}  # an address for documentation: nobody bears it
    assert network("no address") == {}


def test_a_file_of_the_template_is_looked_for_at_its_path_and_then_in_the_directory(tmp_path):
    own = tmp_path / "solver.py"
    own.touch()
    assert located(str(own), "/nowhere") == str(own)
    assert located("/nowhere/solver.py", str(tmp_path)) == str(own)
    assert located("/nowhere/other.py", str(tmp_path)) == "/nowhere/other.py"


def test_a_machine_has_one_name_until_it_starts_again():
    assert own_machine()
    assert own_machine() == own_machine()


def test_supervision_loads_with_the_standard_library_alone():
    code = (
        "import sys; sys.path.append(sys.argv[1]); import apples.launch.job_processes; "
        "import apples.launch.this_host; "
        "print(*sorted(m for m in sys.modules if m.startswith('apples')))"
    )
    root = __file__.rpartition("/tests/")[0]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True
    )
    ours = {"apples", "apples.launch"}
    ours |= {"apples.launch.job_processes", "apples.launch.this_host"}
    assert set(done.stdout.split()) == ours

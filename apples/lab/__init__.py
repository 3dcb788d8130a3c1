"""The lab: an emulated cluster on one Linux machine, from one TOML file.

Read `document` (the lab file), `requirements` (which of its needs this machine lacks), `up` (the steps that
make it), `journal` (records each step before it is taken, so that `down` can undo it after any failure). The steps
use `cgroups`, `network` (links, and their rates while the lab is up), `host_init` (the first process of a host),
`enter` (into its namespaces), `ssh` and `slurm` with `quoting` (values in their configuration files), `load`
(competing processes) and `host_list` (the speeds of the hosts, and the file that is the result). `record` is a lab
that is up, and `execution` runs programs on its hosts. Front end: `commands`.
"""

from apples import lazy
from apples.lab.document import LabDocument, read_lab_file
from apples.lab.down import down
from apples.lab.execution import captured, execute
from apples.lab.network import shape
from apples.lab.record import EmulatedHost, Lab, begun, find, labs
from apples.lab.up import up

__all__ = [
    "EmulatedHost",
    "Lab",
    "LabDocument",
    "begun",
    "captured",
    "down",
    "execute",
    "find",
    "labs",
    "read_lab_file",
    "shape",
    "up",
]

# Eager, since `down`, `shape` and `up` are modules as well; the stub lists the names that the tests import.
__getattr__, __dir__, _ = lazy(__name__, __file__)

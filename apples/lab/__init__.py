"""The lab: an emulated cluster on one Linux machine, from one TOML file.

Read `document` (what a file may say), `up` (the steps), `journal` (why none of them is ever left behind),
`down`; then what the steps are made of: `cgroups`, `network`, `machine` (a host's first process), `enter`
(getting into one), `secure_shell` and `slurm` with `quoting` (what their files may say), `competing` (load),
`speeds` and `host_list` (what comes out), `shaping` (links changed later). `record` is a lab that is up,
`commands` runs things on its hosts, `tools` says what this machine lacks.
"""

from apples.lab.commands import captured, execute
from apples.lab.document import LabDocument, read_lab_file
from apples.lab.down import down
from apples.lab.record import Lab, Machine, begun, find, labs
from apples.lab.shaping import shape
from apples.lab.up import up

__all__ = [
    "Lab",
    "LabDocument",
    "Machine",
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

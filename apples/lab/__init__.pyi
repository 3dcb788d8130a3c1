from apples.lab.document import LabDocument as LabDocument
from apples.lab.document import read_lab_file as read_lab_file
from apples.lab.down import down as down
from apples.lab.execution import captured as captured
from apples.lab.execution import execute as execute
from apples.lab.network import shape as shape
from apples.lab.record import EmulatedHost as EmulatedHost
from apples.lab.record import Lab as Lab
from apples.lab.record import begun as begun
from apples.lab.record import find as find
from apples.lab.record import labs as labs
from apples.lab.up import up as up

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.lab.cgroups import LabCgroup as LabCgroup
from apples.lab.cgroups import LabHierarchy as LabHierarchy
from apples.lab.document import HostEntry as HostEntry
from apples.lab.execution import entering as entering
from apples.lab.execution import environment as environment
from apples.lab.journal import LabJournal as LabJournal
from apples.lab.journal import steps_without_checksums as steps_without_checksums
from apples.lab.record import MARK as MARK
from apples.lab.record import identity as identity
from apples.lab.slurm import configuration as configuration

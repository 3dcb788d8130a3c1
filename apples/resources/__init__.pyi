from apples.resources.host import LEAST as LEAST
from apples.resources.host import MOST as MOST
from apples.resources.host import Cpus as Cpus
from apples.resources.host import Host as Host
from apples.resources.host import Memory as Memory
from apples.resources.host import Name as Name
from apples.resources.host import PositiveNumber as PositiveNumber
from apples.resources.host import ResourceSet as ResourceSet
from apples.resources.host import names as names
from apples.resources.host_list import HostList as HostList
from apples.resources.host_list import HostListDocument as HostListDocument
from apples.resources.host_list import read_host_list as read_host_list
from apples.resources.network import Link as Link
from apples.resources.network import Network as Network

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.resources.network import NEVER_MEASURED as NEVER_MEASURED

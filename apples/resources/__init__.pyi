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
from apples.resources.apportionment import apportion as apportion
from apples.resources.apportionment import equal_parts as equal_parts
from apples.resources.apportionment import largest_remainder as largest_remainder
from apples.resources.distances import NEAR as NEAR
from apples.resources.distances import SITE as SITE
from apples.resources.distances import between as between
from apples.resources.distances import host_distances as host_distances
from apples.resources.distances import tells as tells
from apples.resources.network import NEVER_MEASURED as NEVER_MEASURED
from apples.resources.schedule import Allocation as Allocation
from apples.resources.schedule import NoFeasiblePlanError as NoFeasiblePlanError
from apples.resources.schedule import Schedule as Schedule

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.monitoring.decider import NodeCapacity as NodeCapacity
from apples.monitoring.decider import check_for_migration as check_for_migration
from apples.monitoring.master import LoadMonitor as LoadMonitor
from apples.monitoring.master import RecentMean as RecentMean
from apples.monitoring.message_matrix import MOST_READ as MOST_READ
from apples.monitoring.message_matrix import CountedRank as CountedRank
from apples.monitoring.message_matrix import MessageMatrix as MessageMatrix
from apples.monitoring.node_load import MOST_BYTES as MOST_BYTES
from apples.monitoring.node_load import MOST_FILES as MOST_FILES
from apples.monitoring.node_load import NodeSampler as NodeSampler
from apples.monitoring.node_load import NodeSnapshot as NodeSnapshot
from apples.monitoring.node_load import ProcessCapacity as ProcessCapacity
from apples.monitoring.node_load import line_of as line_of
from apples.monitoring.node_load import read_line as read_line
from apples.monitoring.payback import MigrationRule as MigrationRule
from apples.monitoring.payback import SharedHost as SharedHost
from apples.monitoring.payback import SharedHosts as SharedHosts
from apples.monitoring.payback import migrate as migrate
from apples.monitoring.placement import PlacementProblem as PlacementProblem
from apples.monitoring.placement import distances as distances
from apples.monitoring.placement import place as place
from apples.monitoring.placement import rank_order as order_ranks
from apples.monitoring.series import LoadReporter as LoadReporter
from apples.monitoring.series import LoadSeries as LoadSeries

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.monitoring.master import LoadMonitor as LoadMonitor
from apples.monitoring.master import RecentMean as RecentMean
from apples.monitoring.node_load import MOST_BYTES as MOST_BYTES
from apples.monitoring.node_load import MOST_FILES as MOST_FILES
from apples.monitoring.node_load import NodeSampler as NodeSampler
from apples.monitoring.node_load import NodeSnapshot as NodeSnapshot
from apples.monitoring.node_load import ProcessCapacity as ProcessCapacity
from apples.monitoring.node_load import line_of as line_of
from apples.monitoring.node_load import read_line as read_line
from apples.monitoring.series import LoadReporter as LoadReporter
from apples.monitoring.series import LoadSeries as LoadSeries

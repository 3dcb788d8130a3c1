# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.web.clusters import Kept as Kept
from apples.web.planning import choices as choices
from apples.web.run_list import ORDERS as ORDERS
from apples.web.run_list import PER_PAGE as PER_PAGE
from apples.web.run_list import RecordedRuns as RecordedRuns
from apples.web.run_list import RunQuery as RunQuery
from apples.web.run_list import page_of as page_of

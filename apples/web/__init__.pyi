# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.web.clusters import Kept as Kept

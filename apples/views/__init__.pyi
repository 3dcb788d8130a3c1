# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.views.cluster import PER_PAGE as PER_PAGE
from apples.views.cluster import ClusterQuery as ClusterQuery
from apples.views.cluster import cluster_parts as cluster_parts
from apples.views.cluster import matching as matching
from apples.views.cluster import part_of as part_of
from apples.views.cluster import said as said
from apples.views.foretold import Supposition as Supposition
from apples.views.queue import queue_text as queue_text
from apples.views.queue import submitted_text as submitted_text
from apples.views.queue import swf_lines as swf_lines
from apples.views.queue import watched_text as watched_queue_text
from apples.views.queue import why_text as why_text
from apples.views.queue_chart import MOST_HOSTS as MOST_HOSTS
from apples.views.queue_chart import MOST_WAITING as MOST_WAITING
from apples.views.queue_chart import expected_end as expected_end
from apples.views.queue_chart import host_map as host_map
from apples.views.queue_chart import time_scale as time_scale
from apples.views.served_cluster import cluster_job_page as cluster_job_page

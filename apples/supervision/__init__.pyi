# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.supervision.job_processes import MARK as MARK
from apples.supervision.job_processes import SHARED_MEMORY as SHARED_MEMORY
from apples.supervision.job_processes import all_processes as all_processes
from apples.supervision.job_processes import descendants as descendants
from apples.supervision.job_processes import exec_launcher as exec_launcher
from apples.supervision.job_processes import expect_processes as expect_processes
from apples.supervision.job_processes import kill_marked as kill_marked
from apples.supervision.job_processes import mark as mark
from apples.supervision.job_processes import marked as marked
from apples.supervision.job_processes import noted_processes as noted_processes
from apples.supervision.job_processes import parent_of as parent_of
from apples.supervision.job_processes import read as read
from apples.supervision.job_processes import remove_run as remove_run
from apples.supervision.job_processes import remove_shared_memory as remove_shared_memory
from apples.supervision.job_processes import state_of as state_of
from apples.supervision.this_host import addresses as addresses
from apples.supervision.this_host import interface_of as interface_of
from apples.supervision.this_host import located as located
from apples.supervision.this_host import network as network
from apples.supervision.this_host import own_machine as own_machine

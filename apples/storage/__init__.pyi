# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.storage.documents import lock as lock
from apples.storage.documents import locked as locked
from apples.storage.documents import put as put
from apples.storage.documents import replace as replace
from apples.storage.documents import written as written
from apples.storage.folder import DIRECTORY as DIRECTORY
from apples.storage.folder import Folder as Folder
from apples.storage.folder import walk as walk
from apples.storage.identity import identity_of as identity_of
from apples.storage.journal import LONGEST_LINE as LONGEST_LINE
from apples.storage.journal import Journal as Journal
from apples.storage.journal import JournalError as JournalError
from apples.storage.journal import encode as encode
from apples.storage.journal import parse as parse

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.wire.connection import LineConnection as LineConnection
from apples.wire.connection import call_ready as call_ready
from apples.wire.json_lines import DEEPEST as DEEPEST
from apples.wire.json_lines import LONGEST_LINE as LONGEST_LINE
from apples.wire.json_lines import Greeting as Greeting
from apples.wire.json_lines import LineBuffer as LineBuffer
from apples.wire.json_lines import LineError as LineError
from apples.wire.json_lines import decode as decode
from apples.wire.json_lines import encode as encode
from apples.wire.resumable_stream import ResumableStream as ResumableStream
from apples.wire.tls import Tls as Tls
from apples.wire.tls import tls_of as tls_of

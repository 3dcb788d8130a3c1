# isort: split
# Not public: the tests import these names from here, so that a module can move.
from apples.ui.charts import Scale as Scale
from apples.ui.charts import abbreviated as abbreviated
from apples.ui.page import render as render
from apples.ui.palette import DARK as DARK
from apples.ui.palette import FILLS as FILLS
from apples.ui.palette import LIGHT as LIGHT
from apples.ui.palette import css as css
from apples.ui.provenance import made_by as made_by
from apples.ui.terminal import INVISIBLE as INVISIBLE
from apples.ui.terminal import escaped as escaped
from apples.ui.units import duration as duration
from apples.ui.web import streams as streams
from apples.ui.web.frame import Frame as Frame
from apples.ui.web.gate import FORM_BYTES as FORM_BYTES
from apples.ui.web.gate import MOST_SESSIONS as MOST_SESSIONS
from apples.ui.web.gate import SIGN_IN_BYTES as SIGN_IN_BYTES
from apples.ui.web.gate import Sessions as Sessions
from apples.ui.web.site import Site as Site
from apples.ui.web.site import create_app as create_app
from apples.ui.web.streams import MOST_KEPT as MOST_KEPT
from apples.ui.web.streams import LiveStream as LiveStream
from apples.ui.web.streams import Streams as Streams

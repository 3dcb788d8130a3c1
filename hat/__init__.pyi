# The table of the front door: type checkers and `__init__.py` read it.

from hat.active_sets import ActiveSet as ActiveSet
from hat.active_sets import active_set as active_set
from hat.application import Application as Application
from hat.application import bound_parameters as bound_parameters
from hat.document import Document as Document
from hat.document import Fault as Fault
from hat.document import UnreadableError as UnreadableError
from hat.document import parse as parse
from hat.document import read as read
from hat.document import read_bytes as read_bytes
from hat.document import refuse as refuse
from hat.document import schema as schema
from hat.editing import FormField as FormField
from hat.editing import NotEditableError as NotEditableError
from hat.editing import fields_of as fields_of
from hat.editing import merged as merged
from hat.expression import Expression as Expression
from hat.expression import ExpressionError as ExpressionError
from hat.fields import Size as Size
from hat.fields import StrictTable as StrictTable
from hat.inspection import TEMPLATE as TEMPLATE
from hat.inspection import UNKNOWN as UNKNOWN
from hat.inspection import USER as USER
from hat.inspection import CheckResult as CheckResult
from hat.inspection import Kind as Kind
from hat.inspection import check as check
from hat.inspection import inspect as inspect
from hat.modules import Data as Data
from hat.modules import Implementation as Implementation
from hat.modules import Interface as Interface
from hat.modules import Parameter as Parameter
from hat.modules import Requirements as Requirements
from hat.modules import Structure as Structure
from hat.modules import Task as Task
from hat.problem import DocumentError as DocumentError
from hat.problem import HatError as HatError
from hat.problem import InvalidValueError as InvalidValueError
from hat.problem import Problem as Problem
from hat.problem import nearest as nearest
from hat.problem import printable as printable
from hat.problem import shown as shown
from hat.specifications import MEASURES as MEASURES
from hat.specifications import Constraints as Constraints
from hat.specifications import Objective as Objective
from hat.specifications import Preferences as Preferences
from hat.specifications import UserSpecifications as UserSpecifications
from hat.template import ApplicationTemplate as ApplicationTemplate
from hat.template import Assumption as Assumption
from hat.toml import dump as dump

# isort: split
# Not public: the tests import these names from here, so that a module can move.
from hat.editing import comments_of as comments_of
from hat.positions import lines_of as lines_of

from apples.malleable.balancers import STRATEGIES as STRATEGIES
from apples.malleable.balancers import contiguous as contiguous
from apples.malleable.balancers import refine as refine
from apples.malleable.balancers.contract import Measured as Measured
from apples.malleable.balancers.contract import Processor as Processor
from apples.malleable.control.command import HostRows as HostRows
from apples.malleable.control.command import HostShare as HostShare
from apples.malleable.control.command import ResizeDone as ResizeDone
from apples.malleable.control.command import RolledBack as RolledBack
from apples.malleable.runtime.blocks import Blocks as Blocks
from apples.malleable.runtime.collectives import wait as wait
from apples.malleable.runtime.csr import CsrMatrix as CsrMatrix
from apples.malleable.runtime.declared import DeclarationError as DeclarationError
from apples.malleable.runtime.declared import RowArray as RowArray
from apples.malleable.runtime.declared import State as State
from apples.malleable.runtime.declared import TileArray as TileArray
from apples.malleable.runtime.declared import UndeclaredStateError as UndeclaredStateError
from apples.malleable.runtime.job import MalleableJob as MalleableJob
from apples.malleable.runtime.membership import HostChange as HostChange
from apples.malleable.runtime.membership import Released as Released
from apples.malleable.runtime.membership import Rollback as Rollback

# What a program calls them: there `Job` and `Change` can mean nothing else.
Change = HostChange
Job = MalleableJob

"""Applications other than the iterating grid, and the files that users write.

`parameter_sweep`, `master_worker` and `pipeline` plan and run one kind of application each. `files` finds the kind
of a file and checks it; `scaffold` writes the files of a new application; `commands` is `hat` and `apples schema`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)

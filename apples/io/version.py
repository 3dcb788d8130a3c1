"""The version of apples that is installed."""

from importlib.metadata import version

__version__ = version("apples")

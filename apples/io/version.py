"""The version of apples that is installed."""

from importlib.metadata import version

VERSION = version("apples")

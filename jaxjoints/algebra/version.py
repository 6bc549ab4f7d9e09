"""The version of the library, as its installed package states it."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version(__name__.partition(".")[0])
except PackageNotFoundError:
    # Source files that are on the path and not installed.
    VERSION = "unknown"

"""Items at constant places of an axis: looked up, and added to."""

from .compiler import add_at, take

__all__ = ["add_at", "take"]

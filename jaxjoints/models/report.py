"""What a reader tells of a file: what is skipped, and what is changed, in one warning."""

from dataclasses import dataclass, field

from ..algebra.calls import warn
from .errors import LoadError, LoadWarning

# Lines of a warning.
MOST_LINES = 40


@dataclass
class Report:
    """Collects what a reader does not keep to.

    places: of each kind of thing that is skipped, the lines where it stands
    notes: what was changed, a sentence each
    """

    source: str
    places: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def skip(self, what: str, line: int | None = None) -> None:
        """Something of the file that is not simulated or shown; line: where it stands."""
        self.places.setdefault(what, []).extend([] if line is None else [line])

    @property
    def skipped(self) -> tuple[str, ...]:
        """A line for each kind of thing that is skipped."""
        lines = []
        for what, places in self.places.items():
            count = f"{len(places)} times, first in" if len(places) > 1 else "in"
            lines.append(f"{what} ({count} line {places[0]})" if places else what)
        return tuple(lines)

    def tell(self, strict: bool) -> None:
        """Warn of all in one LoadWarning, or raise a LoadError with `strict`; silent of nothing."""
        lines = [f"skipped: {line}" for line in self.skipped]
        lines += [f"changed: {note}" for note in self.notes]
        if not lines:
            return
        more = len(lines) - MOST_LINES
        shown = [*lines[:MOST_LINES], *([f"… and {more} more"] if more > 0 else [])]
        if strict:
            problem = (
                "has what strict=True refuses to skip or change; take it out, or load without:"
            )
            raise LoadError("\n  ".join([problem, *shown]), source=self.source)
        text = "\n  ".join([f"{self.source}: not all of it is simulated as written", *shown])
        warn(LoadWarning(text))

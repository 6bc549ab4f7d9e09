"""LoadError and LoadWarning: what is wrong with a file, and what of it is not simulated."""


class LoadError(ValueError):
    """A file that cannot be loaded: one sentence with file, line and element.

    source: name of the file, or what stands for a text without one
    line: where the element begins, None if it is not known
    element: what the file is wrong about, such as "joint 'elbow'", None for the whole file
    """

    def __init__(self, problem: str, *, source: str, line: int | None = None, element=None):
        self.source, self.line, self.element = source, line, element
        place = [source, None if line is None else f"line {line}", element]
        super().__init__(f"{', '.join(filter(None, place))}: {problem}")


class LoadWarning(UserWarning):
    """What a file asks for and its model does not do, in one list."""


def shown(value: object, most: int = 80) -> str:
    """A value from a file as it is quoted in an error: on one line, not longer than `most`."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 2]}…{text[-1]}"

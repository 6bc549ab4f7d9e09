"""Counting what an optimised program of XLA launches."""

import re

# Instructions that compute nothing or are computed elsewhere.
NO_KERNELS = set(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id iota "
    "add-dependency opt-barrier domain".split()
)
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\(")


def kernels(text: str) -> int:
    """Fusions, custom calls and other instructions that a run of a program launches.

    Those of a loop count as often as it is known to turn, once where that is not known; of a
    conditional the largest branch; of a fusion the one that it is.
    """
    computations, entry, current = {}, None, None
    for line in text.splitlines():
        begin = COMPUTATION.match(line)
        if begin:
            current = computations.setdefault(begin[2], [])
            entry = begin[2] if begin[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (instruction := INSTRUCTION.match(line)):
            current.append((instruction[1], line))

    def count(name: str) -> int:
        return sum(launches(*instruction) for instruction in computations.get(name, ()))

    def launches(operation: str, line: str) -> int:
        if operation == "while":
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            return count(_named("body", line)) * int(turns[1] if turns else 1)
        if operation == "conditional":
            branches = re.findall(r"%([\w.\-]+)", line.partition("computations={")[2])
            return max((count(name) for name in branches), default=0)
        if operation == "call":
            return count(_named("to_apply", line))
        return operation not in NO_KERNELS

    return count(entry)


def _named(attribute: str, line: str) -> str:
    return re.search(rf"{attribute}=%?([\w.\-]+)", line)[1]

"""What an optimised program of XLA launches, and the bytes that its kernels move."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Instructions that compute nothing or are computed elsewhere.
NO_KERNELS = set(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id iota "
    "add-dependency opt-barrier domain".split()
)
# Those that run other computations.
CALLS = ("while", "conditional", "call")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\([^=]*?\)|\S+) ([\w\-]+)\((.*)$")
SHAPE = re.compile(r"(pred|[a-z]+)(\d*)\w*\[([\d,]*)\]")


@dataclass(frozen=True)
class Instruction:
    """An instruction: its name, the shape of its result, what it does, and the rest of its line."""

    name: str
    shape: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """Names of the instructions whose results it reads."""
        return re.findall(r"%([\w.\-]+)", self.rest.split("), ")[0])

    @property
    def source(self) -> str:
        """Where it was traced."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""

    def named(self, attribute: str) -> str | None:
        """Name of the computation that is one of its attributes."""
        found = re.search(rf"{attribute}=%?([\w.\-]+)", self.rest)
        return found[1] if found else None

    @property
    def turns(self) -> int | None:
        """How often a loop turns, where that is known."""
        found = re.search(r'known_trip_count"?:\{"n":"(\d+)"', self.rest)
        return int(found[1]) if found else None

    @property
    def branches(self) -> list[str]:
        """Names of the branches of a conditional."""
        several = self.rest.partition("computations={")[2].partition("}")[0]
        both = [self.named(f"{which}_computation") for which in ("true", "false")]
        return re.findall(r"%([\w.\-]+)", several) or [name for name in both if name]


@dataclass
class Loop:
    """A loop of a program, or the program itself, without the loops in it.

    name: of its computation; turns: how often it turns, None where that is not known
    kernels: (bytes, instruction) of what each turn launches
    inner: the loops in it
    """

    name: str
    turns: int | None
    kernels: list[tuple[int, Instruction]]
    inner: list["Loop"]

    def walk(self) -> Iterator["Loop"]:
        """The loop, and all in it."""
        yield self
        for loop in self.inner:
            yield from loop.walk()

    def total(self, of) -> float:
        """Sum of a number `of` each kernel's bytes over one turn and the loops in it; loops without
        a known number of turns count once.
        """
        own = sum(of(size) for size, _ in self.kernels)
        return own + sum((loop.turns or 1) * loop.total(of) for loop in self.inner)


class Program:
    """The optimised text of a program, read."""

    def __init__(self, text: str):
        self.computations: dict[str, list[Instruction]] = {}
        current = None
        for line in re.sub(r"/\*index=\d+\*/", "", text).splitlines():
            begin = COMPUTATION.match(line)
            if begin:
                current = self.computations.setdefault(begin[2], [])
                self.entry = begin[2] if begin[1] else getattr(self, "entry", None)
            elif line.startswith("}"):
                current = None
            elif current is not None and (found := INSTRUCTION.match(line)):
                current.append(Instruction(*found.groups()))

    def loops(self, name: str | None = None, turns: int | None = 1) -> Loop:
        """The program as a tree of loops; of a conditional the branch that launches most."""
        name = name or self.entry
        loop = Loop(name, turns, [], [])
        shapes = {x.name: x.shape for x in self.computations.get(name, ())}
        for x in self.computations.get(name, ()):
            if x.operation == "while":
                loop.inner.append(self.loops(x.named("body"), x.turns))
            elif x.operation == "call":
                self._join(loop, self.loops(x.named("to_apply")))
            elif x.operation == "conditional":
                branches = [self.loops(branch) for branch in x.branches]
                if branches:
                    self._join(loop, max(branches, key=lambda b: b.total(lambda _: 1)))
            elif x.operation not in NO_KERNELS:
                loop.kernels.append((self._moved(x, shapes), x))
        return loop

    @staticmethod
    def _join(loop: Loop, called: Loop) -> None:
        loop.kernels += called.kernels
        loop.inner += called.inner

    def _moved(self, x: Instruction, shapes: dict[str, str]) -> int:
        """Bytes that a kernel reads and writes."""
        read = [size_of(shapes.get(name, "")) for name in x.operands]
        called = x.named("calls") if x.operation == "fusion" else None
        if called not in self.computations:
            return size_of(x.shape) + sum(read)
        read = [self._read(called, i, size) for i, size in enumerate(read)]
        return self._written(called, size_of(x.shape)) + sum(read)

    def _read(self, called: str, operand: int, whole: int) -> int:
        """Bytes that a fusion reads of an operand: of what it only slices, the slices."""
        body = self.computations[called]
        names = {
            x.name for x in body if x.operation == "parameter" and x.rest.startswith(f"{operand})")
        }
        if not names:
            return whole
        total = 0
        for x in body:
            if not names.intersection(x.operands):
                continue
            if x.operation in ("bitcast", "reshape", "copy", "transpose"):
                names.add(x.name)
            elif x.operation in ("slice", "dynamic-slice", "gather"):
                total += size_of(x.shape)
            elif x.operation != "dynamic-update-slice" or x.operands[0] not in names:
                return whole
        return min(total, whole)

    def _written(self, called: str, whole: int) -> int:
        """Bytes that a fusion writes: of an update in place, the update."""
        last = self.computations[called][-1]
        if last.operation != "dynamic-update-slice":
            return whole
        shapes = {x.name: x.shape for x in self.computations[called]}
        return size_of(shapes.get(last.operands[1], ""))


def size_of(shape: str) -> int:
    """Bytes of a shape, or of all shapes of a tuple."""
    total = 0
    for _, bits, lengths in SHAPE.findall(shape):
        items = 1
        for length in filter(None, lengths.split(",")):
            items *= int(length)
        total += items * (int(bits or 8) // 8)
    return total


def kernels(text: str) -> int:
    """Fusions, custom calls and other instructions that a run of a program launches.

    Those of a loop count as often as it is known to turn, once where that is not known; of a
    conditional the largest branch; of a fusion the one that it is.
    """
    return int(Program(text).loops().total(lambda _: 1))

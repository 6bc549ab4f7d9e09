"""Actuators of MJCF: which are servos, laws of joints and tendons, and which efforts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..laws.drives import Servo
from ..laws.law import Law
from .actuators import Activation, Actuator
from .errors import refusing

# Kinds of activation that are simulated, as MuJoCo calls them.
ACTIVATIONS = {
    f"mjDYN_{kind.upper()}": kind for kind in ("none", "integrator", "filter", "filterexact")
}
# Groups of actuators that a file can switch off.
ACTUATOR_GROUPS = 31
# What an actuator may have besides, and is skipped.
ACTUATOR_FIELDS = ("damping", "dampingpoly", "armature", "delay", "actearly")
# Time constants below this count as this in MuJoCo [s].
LEAST_TIME = 1e-15
# What actuators act on that is neither a joint nor a tendon.
TARGETS = {
    **{"mjTRN_SITE": "a site", "mjTRN_BODY": "a body", "mjTRN_SLIDERCRANK": "a slider-crank"},
    **{"mjTRN_SO3": "a ball joint"},
}


@dataclass
class _Read:
    """An actuator of the file.

    i: its number; at: "JOINT" or "TENDON", and the number of what it acts on
    gear: force along the coordinate of the joint, or along the tendon, per force of the actuator
    arms: of each joint by its number, force along its coordinate per force of the actuator
    actuator: without arms
    is_servo: whether a law stands for it
    """

    i: int
    at: tuple[str, int]
    gear: float
    arms: list[tuple[int, float]]
    actuator: Actuator
    is_servo: bool = False


@dataclass
class Drives:
    """Actuators of a file, and the servos among them as laws.

    of_joints: by the number of a joint, makers of laws, functions of the coordinate
    of_tendons: by the number of a tendon, laws
    """

    reads: list[_Read] = field(default_factory=list)
    of_joints: dict[int, Callable[[int], Law]] = field(default_factory=dict)
    of_tendons: dict[int, Law] = field(default_factory=dict)

    def located(
        self, places: Mapping[int, tuple[str, int]], transmissions: Mapping[int, str]
    ) -> tuple[Actuator, ...]:
        """The actuators by the names of the builder.

        places: of each joint of the file, joint of the builder and number of the coordinate
        transmissions: of each tendon with laws, the transmission
        """
        found = []
        for read in self.reads:
            actuator = replace(read.actuator, arms=tuple((places[j], arm) for j, arm in read.arms))
            if read.is_servo:
                kind, target = read.at
                name, i = places[target] if kind == "JOINT" else (transmissions[target], 0)
                actuator = replace(actuator, servo=name, place=i)
            found.append(actuator)
        return tuple(found)


def read_actuators(reader: Any) -> Drives:
    """The actuators of a `_Reader` of MJCF.

    Position and velocity servos on one coordinate add up to one servo. One with a limit of its own
    force adds up with no other, so of several, those are efforts of the state.
    """
    return _Actuators(reader).drives()


class _Actuators:
    """Reads the actuators of MuJoCo's compiled model `m`."""

    def __init__(self, reader: Any):
        self.reader, self.m, self.kind = reader, reader.m, reader.kind
        self.names = reader.names["ACTUATOR"]
        # Numbers in the compiled model by what they mean.
        self.meaning = {
            family: {self.kind[name]: name for name in self.kind if name.startswith(f"mj{family}_")}
            for family in ("DYN", "GAIN", "BIAS", "TRN")
        }

    def drives(self) -> Drives:
        """See `read_actuators`."""
        found: list[_Read] = []
        counts = self.reader.optional("actuator_ctrlnum")
        control = activations = 0
        for i in range(len(self.m.actuator_trntype)):
            count = int(counts[i]) if counts.size else 1
            with refusing(self.reader.refuse("ACTUATOR", i)):
                read = self._read(i, control, count, activations)
            control += count
            if read is not None:
                found.append(read)
                activations += read.actuator.activation is not None
        self._limit_tendons(found)
        drives = Drives(found)
        for at, reads in _servos(found).items():
            with refusing(self.reader.refuse("ACTUATOR", reads[0].i)):
                self._add_servo(drives, at, reads)
        for read in found:
            moving = any((*read.actuator.gain[1:], *read.actuator.bias[1:]))
            if moving and read.arms and not read.is_servo:
                self.reader.note(
                    *("ACTUATOR", read.i),
                    "its force is an effort that depends on the state: Model.control(…, state=…)",
                )
        return drives

    def _read(self, i: int, control: int, count: int, activations: int) -> _Read | None:
        """An actuator that is simulated, None for another, which is listed.

        control: number of its first control; count: how many it has; activations: of those before
        """
        m, reader = self.m, self.reader
        for name in ACTUATOR_FIELDS:
            if reader.optional(f"actuator_{name}")[i : i + 1].any():
                reader.skip("ACTUATOR", i, f"{name} of ")
        if 0 <= (group := int(m.actuator_group[i])) < ACTUATOR_GROUPS:
            if m.opt.disableactuator >> group & 1:
                reader.note("ACTUATOR", i, "its group is off and is left out")
                return None
        if reader.disabled("ACTUATION"):
            reader.note("ACTUATOR", i, "actuation is off in the file, and it is left out")
            return None
        reason = self._unknown(i, count)
        if reason is not None:
            reader.skip("ACTUATOR", i, after=f", {reason}")
            return None
        kind, target = m.actuator_trntype[i], int(m.actuator_trnid[i, 0])
        outputs = reader.optional("actuator_outadr")
        gear = float(m.actuator_gear[int(outputs[i]) if outputs.size else i, 0])
        tendon = kind == self.kind["mjTRN_TENDON"]
        weights = reader.weights(target) if tendon else [(target, 1.0)]
        # A joint without an arm is not moved.
        arms = [(j, gear * w) for j, w in weights if gear * w]
        affine = m.actuator_gaintype[i] == self.kind["mjGAIN_AFFINE"]
        biased = m.actuator_biastype[i] == self.kind["mjBIAS_AFFINE"]
        gain, bias = m.actuator_gainprm[i, :3].tolist(), m.actuator_biasprm[i, :3].tolist()
        ranges = {}
        for name, row in (("ctrl", control), ("force", i)):
            limited = getattr(m, f"actuator_{name}limited")[row]
            numbers = getattr(m, f"actuator_{name}range")[row]
            ranges[name] = tuple(numbers.tolist()) if limited else None
        if reader.disabled("CLAMPCTRL"):
            ranges["ctrl"] = None
        actuator = Actuator(
            *(self.names[i], control, ()),
            tuple(gain) if affine else (gain[0], 0.0, 0.0),
            tuple(bias) if biased else (0.0, 0.0, 0.0),
            control_range=ranges["ctrl"],
            force_range=ranges["force"],
            activation=self._activation(i, activations),
        )
        return _Read(i, ("TENDON" if tendon else "JOINT", target), gear, arms, actuator)

    def _unknown(self, i: int, count: int) -> str | None:
        """Why an actuator is not simulated, None for one that is."""
        m = self.m
        target, kind = int(m.actuator_trnid[i, 0]), m.actuator_trntype[i]
        known = {
            "DYN": (m.actuator_dyntype[i], ACTIVATIONS),
            "GAIN": (m.actuator_gaintype[i], ("mjGAIN_FIXED", "mjGAIN_AFFINE")),
            "BIAS": (m.actuator_biastype[i], ("mjBIAS_NONE", "mjBIAS_AFFINE")),
        }
        for family, (value, names) in known.items():
            name = self.meaning[family].get(int(value), f"mj{family}_{int(value)}")
            if name not in names:
                word = name.split("_", 1)[1].lower()
                return f"whose {family.lower()}type {word} is not simulated"
        if count != 1:
            return f"which has {count} controls"
        name = self.meaning["TRN"].get(int(kind))
        if name in ("mjTRN_JOINT", "mjTRN_JOINTINPARENT"):
            joint = self.reader.names["JOINT"][target]
            for other in ("ball", "free"):
                if m.jnt_type[target] == self.kind[f"mjJNT_{other.upper()}"]:
                    return f"which acts on the {other} joint {joint!r}"
            return None
        if name == "mjTRN_TENDON":
            if self.reader.weights(target) is None:
                return f"which acts on the spatial tendon {self.reader.names['TENDON'][target]!r}"
            return None
        return f"which acts on {TARGETS.get(str(name), 'what is not simulated')}"

    def _activation(self, i: int, index: int) -> Activation | None:
        m = self.m
        kind = ACTIVATIONS[self.meaning["DYN"][int(m.actuator_dyntype[i])]]
        if kind == "none":
            return None
        bounds = tuple(m.actuator_actrange[i].tolist()) if m.actuator_actlimited[i] else None
        return Activation(index, kind, max(float(m.actuator_dynprm[i, 0]), LEAST_TIME), bounds)

    def _limit_tendons(self, found: Iterable[_Read]) -> None:
        """Limit the force of each actuator that is alone on its tendon as the tendon does."""
        limited = self.reader.optional("tendon_actfrclimited")
        on_tendon: dict[int, list[_Read]] = {}
        for read in found:
            kind, tendon = read.at
            if kind == "TENDON" and limited.size and limited[tendon]:
                on_tendon.setdefault(tendon, []).append(read)
        for tendon, reads in on_tendon.items():
            if len(reads) > 1:
                self.reader.skip("TENDON", tendon, "actuatorfrcrange, of several actuators, of ")
                continue
            (read,) = reads
            limits = tuple(self.m.tendon_actfrcrange[tendon].tolist())
            if read.actuator.force_range is not None:
                limits = _within(read.actuator.force_range, limits)
            read.actuator = replace(read.actuator, force_range=limits)

    def _add_servo(self, drives: Drives, at: tuple[str, int], reads: list[_Read]) -> None:
        """Add the law that stands for actuators of a joint or tendon."""
        kind, target = at
        k = sum(-read.actuator.bias[1] * read.gear**2 for read in reads)
        d = sum(-read.actuator.bias[2] * read.gear**2 for read in reads)
        aim = "target" if k else "target_speed"
        for read in reads:
            read.is_servo = True
            read.actuator = replace(read.actuator, aim=aim, scale=read.gear / (k or d))
        start = {aim: sum(read.actuator.scale * read.actuator.bias[0] for read in reads)}
        effort = self._effort(at, reads, drives.reads)
        if kind == "TENDON":
            drives.of_tendons[target] = Servo(k, d, effort, **start)
        else:
            drives.of_joints[target] = partial(_servo, k, d, effort, start)

    def _effort(
        self, at: tuple[str, int], reads: list[_Read], found: Iterable[_Read]
    ) -> float | None:
        """Largest force of a servo along its coordinate, None for any."""
        m, reader, (kind, target) = self.m, self.reader, at
        bounds = []
        if (own := reads[0].actuator.force_range) is not None:
            low, high = sorted(x * reads[0].gear for x in own)
            bounds.append((low, high))
        for j in sorted({j for read in reads for j, _ in read.arms}):
            if not m.jnt_actfrclimited[j]:
                continue
            if kind == "TENDON":
                tendon = reader.names["TENDON"][target]
                what = f"actuatorfrcrange on the servo of tendon {tendon!r} of "
                reader.skip("JOINT", j, what)
                continue
            bounds.append(tuple(m.jnt_actfrcrange[j].tolist()))
            if sum(j in (joint for joint, _ in read.arms) for read in found) > len(reads):
                sentence = "actuatorfrcrange bounds its servo and its efforts, each, not their sum"
                reader.note("JOINT", j, sentence)
        if not bounds:
            return None
        low, high = bounds[0]
        for other in bounds[1:]:
            low, high = _within((low, high), other)
        effort = max(abs(low), abs(high))
        if low != -high:
            sentence = f"its force along the {kind.lower()}, {low:g} to {high:g}, is ±{effort:g}"
            reader.note("ACTUATOR", reads[0].i, sentence)
        return effort


def _servos(found: Iterable[_Read]) -> dict[tuple[str, int], list[_Read]]:
    """Of each joint or tendon with a servo, the actuators that its law stands for."""
    servos: dict[tuple[str, int], list[_Read]] = {}
    for read in found:
        _, k, d = (-x for x in read.actuator.bias)
        if read.arms and not any(read.actuator.gain[1:]) and k >= 0 and d >= 0 and (k or d):
            servos.setdefault(read.at, []).append(read)
    for at, reads in servos.items():
        unlimited = [read for read in reads if read.actuator.force_range is None]
        servos[at] = unlimited or reads[:1]
    return servos


def _within(inner: tuple[float, float], outer: tuple[float, float]) -> tuple[float, float]:
    """Bounds of what is within `inner`, and then clipped to `outer`."""
    low, high = (min(max(bound, outer[0]), outer[1]) for bound in inner)
    return low, high


def _servo(stiffness: float, damping: float, effort: float | None, aims: dict, coordinate: int):
    return Servo(stiffness, damping, effort, **aims, coordinate=coordinate)

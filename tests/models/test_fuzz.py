"""Mutated files load or are refused: nothing else happens, and no other file is opened."""

import random
import re
import sys
import time
import warnings

import pytest

from jaxjoints.models import FileLimits, LoadError, load_mjcf, load_urdf
from support.urdf import joint, link, robot

SOME, MANY = 100, 1000
# Of the changes to single attributes, those that are tried. Some overflow, or leave no direction.
FEW_OF_URDF, FEW_OF_MJCF, ALL = slice(12, None, 56), slice(2, None, 35), slice(None)
# What a mutated file may take [s].
LONGEST = 20.0
NASTY = (
    *("", "nan", "1e999", "-1", "0", "1e-300", "1e300", "0x10", "1,0", "a", "\u0663", "🤖"),
    *("../../etc/passwd", "file:///etc/passwd", "http://localhost/a", "package://../a", "a" * 9999),
    *("base", "arm", "turn", "fixed", "free", "mesh", "plane", "&lt;script&gt;", "1 2", "1 2 3"),
)

ROBOT = robot(
    '<material name="red"><color rgba="1 0 0 1"/></material>',
    link("base", None, more='<visual><geometry><box size="1 1 1"/></geometry></visual>'),
    link("arm", 2.0, more='<visual><geometry><mesh filename="a.stl"/></geometry></visual>'),
    *(link("hand"), link("finger", None), link("tip", 0.1)),
    joint(
        *("turn", "revolute", "base", "arm"),
        more='<limit lower="-1" upper="1" effort="5" velocity="2"/><dynamics damping="1"/>',
    ),
    joint("slide", "prismatic", "arm", "hand", xyz="0 0 1", axis="1 0 0"),
    joint("bend", "continuous", "hand", "finger", more='<mimic joint="slide" multiplier="2"/>'),
    joint("weld", "fixed", "finger", "tip", rpy="0.1 0.2 0.3"),
    "<transmission/>",
)
MODEL = """<mujoco model="m"><compiler angle="degree"/><option timestep="0.01"/>
<default><geom density="500"/></default>
<asset><mesh name="w" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>
<worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="base" pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.2 0.3"/>
<body name="arm"><joint name="turn" axis="0 1 0" range="-90 90" stiffness="2" damping="0.1"/>
<joint name="slide" type="slide" axis="1 0 0" armature="0.1"/><geom type="capsule" size="0.1 0.2"/>
<site name="tip"/></body></body>
<body name="hand" pos="1 0 0"><joint name="spin" type="ball"/><geom type="mesh" mesh="w"/></body>
</worldbody>
<tendon><fixed name="t"><joint joint="turn" coef="1"/></fixed></tendon>
<actuator><motor joint="turn" gear="2"/><position joint="slide" kp="3"/></actuator>
<equality><weld body1="hand" body2="base"/><joint joint1="turn" joint2="slide"/></equality>
</mujoco>"""


ATTRIBUTES = (
    *(None, "", "nan", "inf", "1e400", "1e200", "1e39", "1e-320", "-1", "0", "0 0 0", "1 -1"),
    *("1e200 1e200 1e200", "1 2 3 4 5 6 7", "abc", "nobody", "world", "arm"),
)


def changes(text):
    """A text with one attribute after the other left out or set to each of the values above."""
    for attribute in re.finditer(r' [a-z0-9]+="[^"]*"', text):
        name = attribute.group().partition("=")[0]
        for value in ATTRIBUTES:
            other = "" if value is None else f'{name}="{value}"'
            yield text[: attribute.start()] + other + text[attribute.end() :]


def mutated(text, chance):
    """A text with a few changes: in values, tags, pieces, single characters."""
    for _ in range(chance.randint(1, 4)):
        kind = chance.randrange(6)
        i = chance.randrange(len(text))
        j = min(len(text), i + chance.randint(1, 60))
        if kind == 0:
            text = text[:i] + text[j:]
        elif kind == 1:
            text = text[:j] + text[i:j] + text[j:]
        elif kind == 2:
            text = text[:i] + chr(chance.randrange(1, 300)) + text[i + 1 :]
        elif kind == 3:
            values = list(re.finditer(r'"[^"]*"', text))
            if values:
                one = chance.choice(values)
                text = text[: one.start()] + f'"{chance.choice(NASTY)}"' + text[one.end() :]
        elif kind == 4:
            tags = list(re.finditer(r"<[^<>]*/>", text))
            if tags:
                one, other = chance.choice(tags), chance.choice(tags)
                text = text[: one.start()] + other.group() + text[one.end() :]
        else:
            names = list(re.finditer(r"\b[a-z]+(?==)", text))
            if names:
                one, other = chance.choice(names), chance.choice(names)
                text = text[: one.start()] + other.group() + text[one.end() :]
    return text


@pytest.fixture(scope="module")
def opened():
    """Paths that are opened while the list is not None: `opened[0]`."""
    paths = [None]

    def hook(event, arguments):
        if paths[0] is not None and event in ("open", "socket.connect", "subprocess.Popen"):
            paths[0].append(str(arguments[0]))

    sys.addaudithook(hook)
    yield paths
    paths[0] = None


def survive(load, text, seed, count, opened, root):
    """Load mutations of a text; returns how many were refused."""
    refused = 0
    limits = FileLimits(size=1_000_000, elements=10_000)
    for i in range(count):
        bad = mutated(text, random.Random(f"{seed}{i}"))
        start, opened[0] = time.perf_counter(), []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(bad, roots=[root], limits=limits)
        except LoadError as error:
            refused += 1
            assert len(str(error)) < 20_000
        except Exception as error:
            raise AssertionError(f"mutation {i} of {seed}: {bad}") from error
        finally:
            touched, opened[0] = opened[0], None
        assert time.perf_counter() - start < LONGEST, bad
        # Modules of Python may be read the first time; files that a text names may not.
        assert not [path for path in touched if "passwd" in path or "a.stl" in path], bad
    return refused


@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
def test_mutated_urdf_loads_or_is_refused(count, opened, tmp_path):
    pytest.importorskip("trimesh")
    refused = survive(load_urdf, ROBOT, "urdf", count, opened, tmp_path)
    assert 0.2 * count < refused < count


@pytest.mark.parametrize("count", [SOME, pytest.param(MANY, marks=pytest.mark.slow)])
def test_mutated_mjcf_loads_or_is_refused(count, opened, tmp_path):
    pytest.importorskip("mujoco")
    refused = survive(load_mjcf, MODEL, "mjcf", count, opened, tmp_path)
    assert 0.2 * count < refused < count


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("urdf", FEW_OF_URDF),
        ("mjcf", FEW_OF_MJCF),
        pytest.param("urdf", ALL, marks=pytest.mark.slow),
        pytest.param("mjcf", ALL, marks=pytest.mark.slow),
    ],
    ids=["some of urdf", "some of mjcf", "urdf", "mjcf"],
)
def test_a_changed_attribute_loads_or_is_refused_with_its_place(kind, chosen):
    if kind == "mjcf":
        pytest.importorskip("mujoco")
    text, load = (ROBOT, load_urdf) if kind == "urdf" else (MODEL, load_mjcf)
    options = {} if kind == "urdf" else {"contacts": "all"}
    for bad in list(changes(text))[chosen]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", UserWarning)
                load(bad, **options)
        except LoadError as error:
            assert error.line is not None and error.element is not None, (str(error), bad)
        except Exception as error:
            raise AssertionError(bad) from error

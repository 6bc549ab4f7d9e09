"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import warnings
from typing import get_args

import pytest

import jaxjoints
from jaxjoints.models.geometry import Shape

MODULES = sorted(m.name for m in pkgutil.walk_packages(jaxjoints.__path__, "jaxjoints."))
FINDER = doctest.DocTestFinder(exclude_empty=True)


# Modules and classes of an extra that the tests do without, and what it brings.
EXTRAS = {
    "jaxjoints.environments.brax": "brax",
    "jaxjoints.environments.go2.Go2": "mujoco",
    "jaxjoints.environments.humanoid.Humanoid": "gymnasium",
    "jaxjoints.viewing.live.Live": "viser",
}


def is_missing(name):
    """Whether a module or class needs an extra that is not installed."""
    return name in EXTRAS and importlib.util.find_spec(EXTRAS[name]) is None


def examples(name):
    """Docstrings of a module that have examples, without those whose extra is not installed."""
    if is_missing(name):
        return []
    with warnings.catch_warnings():
        if name in EXTRAS:
            # Of what others import, such as JAXopt in Brax, which is no longer maintained.
            warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(name)
    return [case for case in FINDER.find(module) if case.examples and not is_missing(case.name)]


# Their programs take seconds to compile.
SLOW = (
    "jaxjoints.solve.newton.Newton",
    "jaxjoints.solve.gauss_seidel.ProjectedGaussSeidel",
    "jaxjoints.solve.problem.Solver",
    "jaxjoints.couplings.shapes.HeightField",
    "jaxjoints.dynamics.acceleration.accelerations",
    "jaxjoints.viewing.motion.Motion",
    "jaxjoints.tools.closure.assemble",
    "jaxjoints.dynamics.linear.linear_model",
    "jaxjoints.dynamics.inverse.inverse_dynamics",
    "jaxjoints.tools.closure.inverse_kinematics",
    "jaxjoints.tools.joint_space.configurations.BodySpeeds",
    "jaxjoints.couplings.coupling.Residual",
    "jaxjoints.environments.brax.BraxEnvironment",
    "jaxjoints.viewing.page.view",
    "jaxjoints.viewing.plots.coordinates",
    "jaxjoints.viewing.page.View",
    "jaxjoints.viewing.live.Live",
    "jaxjoints.tools.closure.AssemblyError",
    "jaxjoints.tools.closure.AssemblyReport",
    "jaxjoints.solve.derivative.Implicit",
    "jaxjoints.solve.derivative.Unrolled",
    "jaxjoints.schemes.instant.Touch",
    "jaxjoints.dynamics.inverse.InverseDynamics",
    "jaxjoints.dynamics.linear.LinearModel",
    "jaxjoints.dynamics.linear.OperatingPoint",
    "jaxjoints.environments.environment.Episode",
    "jaxjoints.environments.unroll.Transition",
    "jaxjoints.identification.fit.Fit",
    "jaxjoints.learning.measures.Agreement",
    "jaxjoints.learning.policy_gradient.Learned",
    "jaxjoints.optimization.plan.Plan",
    "jaxjoints.optimization.receding.Drive",
    "jaxjoints.simulate.controller.Controller",
    "jaxjoints.simulate.readout.readout",
    "jaxjoints.tools.joint_space.configurations.SineCosine",
    "jaxjoints.tools.joint_space.configurations.UnitQuaternion",
    "jaxjoints.dynamics.acceleration.impact",
    "jaxjoints.dynamics.joint_coordinates.tree_forces",
    "jaxjoints.environments.stewart.StewartPlatform",
    "jaxjoints.environments.half_cheetah.HalfCheetah",
    "jaxjoints.environments.ant.Ant",
    "jaxjoints.environments.biped.Biped",
    "jaxjoints.environments.go2.Go2",
    "jaxjoints.environments.humanoid.Humanoid",
    "jaxjoints.environments.gymnasium.VectorEnvironment",
    "jaxjoints.environments.hopper.Hopper",
)
CASES = [
    pytest.param(case, id=case.name, marks=pytest.mark.slow if case.name in SLOW else ())
    for name in MODULES
    for case in examples(name)
]


@pytest.mark.parametrize("case", CASES)
def test_examples_print_what_they_say(case, monkeypatch):
    if EXTRAS.get(case.name) == "viser":
        # The server prints where it is, on a port of its own each time.
        monkeypatch.setattr("rich.print", lambda *_: None)
    report = []
    failed, tried = doctest.DocTestRunner().run(case, out=report.append)
    assert failed == 0, "".join(report)
    assert tried or all(e.options.get(doctest.SKIP) for e in case.examples)


def methods(name):
    """Public methods and properties of the public classes of a module, by their names."""
    if is_missing(name):
        return
    module = sys.modules.get(name) or importlib.import_module(name)
    for kind in vars(module).values():
        if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_"):
            for part, method in vars(kind).items():
                if not part.startswith("_") and callable(method) | isinstance(method, property):
                    yield f"{name}.{kind.__name__}.{part}", getattr(kind, part)


def test_help_of_each_method_says_what_it_does():
    texts = {place: inspect.getdoc(x) or "" for name in MODULES for place, x in methods(name)}
    assert len(texts) > 500
    # A method that overrides another inherits its docstring.
    assert [
        place for place, text in texts.items() if re.fullmatch(r"(See `[\w.]+`\.)?", text)
    ] == []


def public_classes(module):
    """Public classes of a module, and of the modules that it names in `__all__`."""
    for name in getattr(module, "__all__", vars(module)):
        x = getattr(module, name)
        if inspect.ismodule(x) and hasattr(module, "__all__"):
            yield from public_classes(x)
        elif inspect.isclass(x) and not name.startswith("_"):
            if hasattr(module, "__all__") or x.__module__ == module.__name__:
                yield x


def test_each_public_class_has_an_example():
    classes = list(public_classes(jaxjoints))
    assert len(classes) > 180
    without = [kind for kind in classes if ">>>" not in (kind.__doc__ or "")]
    # Drawn shapes are their dimensions; the example of `Visual` has one.
    assert [kind.__name__ for kind in without if kind not in get_args(Shape)] == []

"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import importlib.util
import pkgutil
import warnings

import pytest

import jaxjoints

MODULES = sorted(m.name for m in pkgutil.walk_packages(jaxjoints.__path__, "jaxjoints."))
FINDER = doctest.DocTestFinder(exclude_empty=True)


# Modules of an extra that the tests do without, and what it brings.
EXTRAS = {"jaxjoints.environments.brax": "brax"}


def examples(name):
    """Docstrings of a module that have examples; none where its extra is not installed."""
    if name in EXTRAS and importlib.util.find_spec(EXTRAS[name]) is None:
        return []
    with warnings.catch_warnings():
        if name in EXTRAS:
            # Of what others import, such as JAXopt in Brax, which is no longer maintained.
            warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(name)
    return [case for case in FINDER.find(module) if case.examples]


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
)
CASES = [
    pytest.param(case, id=case.name, marks=pytest.mark.slow if case.name in SLOW else ())
    for name in MODULES
    for case in examples(name)
]


@pytest.mark.parametrize("case", CASES)
def test_examples_print_what_they_say(case):
    report = []
    failed, tried = doctest.DocTestRunner().run(case, out=report.append)
    assert failed == 0, "".join(report)
    assert tried or all(e.options.get(doctest.SKIP) for e in case.examples)

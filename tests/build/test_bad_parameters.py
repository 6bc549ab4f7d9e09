"""Couplings with bad parameters: the builder says what is wrong, where, and what to do."""

import numpy as np
import pytest

import jaxjoints as jj

NO_AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0))


def build(coupling):
    world = jj.SystemBuilder()
    arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("shoulder", coupling, child=arm)


@pytest.mark.parametrize(
    ("coupling", "complaint"),
    [
        (jj.Hinge2(axis_D=(0.0, 0.0, 0.0)), "Hinge2 axis_D .* has length 0; give a direction"),
        (jj.PrismaticUniversal(slide=(0.0, 0.0, 0.0)), "slide .* has length 0"),
        (jj.Helical(0.1, axis=(0.0, 0.0, 0.0)), "Helical axis .* has length 0"),
        (jj.Hinge2(axis_C=(np.nan, 0.0, 1.0)), "axis_C .* must be finite"),
        (
            jj.Hinge2((0.0, 0.0, 1.0), (0.0, 0.0, -2.0)),
            "axis_D and axis_C are 0 degrees apart; they must not be parallel .use Cylindrical",
        ),
        (
            jj.PrismaticRotoide((1.0, 0.0, 0.0), (1.0, 1e-4, 0.0)),
            "are 0.00573 degrees apart; they must not be parallel .use Cylindrical",
        ),
        (
            jj.PrismaticUniversal((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
            "use PrismaticRotoide or Cylindrical",
        ),
        (jj.Reversed(jj.Hinge2((0.0, 0.0, 1.0), (0.0, 0.0, 1.0))), "must not be parallel"),
        (jj.Helical(0.0), "pitch 0.* use Hinge"),
        (jj.Helical(np.inf), "pitch inf must be finite; use Slider"),
        (jj.DoubleBall(0.0), "length 0.0 must be > 0 and finite .use Ball"),
        (jj.DoubleBall(-1.0), "length -1.0 must be > 0"),
        (jj.DoubleHinge(0.0), "length 0.0 must be > 0 and finite .use Hinge"),
        (jj.DoubleHinge(np.nan), "length nan must be > 0"),
        (jj.SpurGear(0.0, 0.3), "SpurGear radius_C 0.0 must be finite and not 0"),
        (jj.BevelGear(0.3, np.inf), "BevelGear radius_D inf must be finite and not 0"),
        (jj.AngularMotor(NO_AXES), "axes .* must be independent"),
        (jj.LinearMotor(np.zeros((3, 3))), r"axes\[0\] has length 0; give a direction"),
        (jj.LinearMotor(np.eye(2)), r"axes has shape \(2, 2\); give three directions"),
        (jj.AngularMotor(carried="CDX"), "carried 'CDX' must be three letters C or D"),
    ],
)
def test_bad_parameters_are_named_with_a_remedy(coupling, complaint):
    with pytest.raises(ValueError, match=f"joint 'shoulder': .*{complaint}"):
        build(coupling)


def test_axes_of_any_length_are_normalized_and_noted():
    world = jj.SystemBuilder()
    arm = world.body("arm", mass=1.0, inertia=(0.1, 0.1, 0.1))
    world.joint("wheel", jj.Hinge2((0.0, 0.0, 2.0), (0.0, 3.0, 0.0)), child=arm)
    system, _ = world.build()
    np.testing.assert_allclose(system.groups[0].coupling.axis_C[:, 0], [0.0, 1.0, 0.0])
    assert "axis_D normalized from length 2" in " ".join(system.topology.notes)

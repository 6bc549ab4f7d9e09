"""Stops that give way as MuJoCo's: motions beside MuJoCo to rounding, closed forms, slopes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxjoints as jj
from jaxjoints.models import load_mjcf
from support.differences import points_about, program, slopes_between

DT, STEPS = 2e-3, 400
ROUNDING = 1e-12
# Gravity drives both arms into their stops: one of the joint, one of a tendon of twice its angle.
ARMS = """<mujoco><option timestep="0.002" tolerance="0" iterations="100"/><worldbody>
  <body><joint name="a" axis="0 1 0" range="-20 40" limited="true" solreflimit="0.03 0.8"
    solimplimit="0.8 0.97 0.02 0.3 3"/><geom type="capsule" size="0.03" fromto="0 0 0 0.5 0 0"/>
  </body>
  <body pos="0 1 0"><joint name="b" axis="0 1 0"/>
    <geom type="capsule" size="0.03" fromto="0 0 0 0.5 0 0"/></body></worldbody>
  <tendon><fixed limited="true" range="-1 1" solreflimit="-2000 -40"
    solimplimit="0.5 0.9 0.1 0.5 2"><joint joint="b" coef="2"/></fixed></tendon></mujoco>"""
BALL = """<mujoco><option timestep="0.002" tolerance="0" iterations="100"/><worldbody>
  <geom type="plane" size="1 1 1"/><body name="ball" pos="0 0 0.1"><freejoint/>
    <geom size="0.1" mass="1.3" friction="1.2 0 0" solref="0.01 0.7"/></body></worldbody>
  </mujoco>"""
SOFT = jj.ReferenceAcceleration(decay=80.0, pull=3e3, inverse_inertia=2.0, first=0.7, width=0.02)


def read(text):
    mujoco = pytest.importorskip("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system, state = load_mjcf(text, contacts=True, like_mujoco=True).build()
    model = mujoco.MjModel.from_xml_string(text)
    return mujoco, model, mujoco.MjData(model), system, state


# Softness of the stops: as above; constants that MuJoCo takes for two steps; no width.
STIFFER = {
    "as given": {},
    "short time constants": {"0.03 0.8": "0.001 0.8", "-2000 -40": "0.002 1"},
    "no width": {"0.02 0.3 3": "0 0.3 3", "0.9 0.1 0.5": "0.9 0 0.5"},
}


@pytest.mark.parametrize("case", STIFFER)
def test_stops_move_as_in_mujoco(case):
    text = ARMS
    for old, new in STIFFER[case].items():
        assert old in text
        text = text.replace(old, new)
    mujoco, model, data, system, state = read(text)
    data.qvel[:] = 3.0, 1.0
    state = system.state(qd={"a": 3.0, "b": 1.0}, start=state)
    _, states = jj.rollout(system, state, dt=DT, steps=STEPS)
    expected = []
    for _ in range(STEPS):
        mujoco.mj_step(model, data)
        expected.append(data.qpos.copy())
    assert (np.max(expected, axis=0) > [np.deg2rad(40), 0.5]).all()  # beyond both stops
    np.testing.assert_allclose(states.q, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("seed", range(4))
def test_a_ball_lands_as_in_mujoco(seed):
    """From a depth of 1 nm: in MuJoCo forces act half-way between the surfaces."""
    mujoco, model, data, system, state = read(BALL)
    speed = np.random.default_rng(seed).normal(size=6) * [1, 1, 1, 5, 5, 5]
    speed[2] = -1.0
    data.qpos[2] -= 1e-9
    data.qvel[:] = speed
    mujoco.mj_step(model, data)
    start = system.state(velocity={"ball": speed}, start=state)
    start = jj.replace(start, position=start.position.at[2].add(-1e-9))
    after, info = jj.step(system, start, dt=DT)
    found = np.concatenate([after.velocity[:, 0], after.omega[:, 0]])
    np.testing.assert_allclose(found, data.qvel, atol=1e-7)
    assert info.contact_force[0, 0] > 0


def slider(gap, speed, law=None):
    """A mass of 0.5 kg on a rail with a stop at 0."""
    world = jj.SystemBuilder(gravity=(0.0, 0.0, 0.0))
    world.body("mass", mass=0.5, inertia=(1.0, 1.0, 1.0))
    law = jj.Limits(0.0, reference=SOFT) if law is None else law
    world.joint("rail", jj.Slider((1.0, 0.0, 0.0)), child="mass", laws=law, q=0.01)
    system, state = world.build()
    place, motion = (jnp.asarray([[x], [0.0], [0.0]]) for x in (gap, speed))
    return system, jj.replace(state, position=place, velocity=motion)


def test_an_impact_decays_at_its_rate_whatever_the_mass():
    depth, speed = 0.03, 2.0
    d = float(SOFT.impedance(jnp.asarray(-depth)))
    assert d == 0.95  # beyond the width
    after, info = jj.step(*slider(-depth, -speed), dt=DT)
    # (A + R) f = a, A of the mass being that of the law: a share d of the reference acceleration.
    aim = SOFT.decay * speed + SOFT.pull * d * depth
    np.testing.assert_allclose(after.velocity[0, 0], -speed + DT * d * aim, rtol=1e-9)
    np.testing.assert_allclose(info.limit_force[0], 0.5 * d * aim, rtol=1e-9)


def test_a_stop_neither_pulls_nor_acts_before_it_is_passed():
    for gap, speed in ((1e-6, -1.0), (-0.001, 5.0)):
        after, info = jj.step(*slider(gap, speed), dt=DT)
        assert after.velocity[0, 0] == speed and info.limit_force[0] == 0


def test_the_impedance_rises_from_first_to_last_along_the_width():
    depths = -np.linspace(0.0, 2 * SOFT.width, 41)
    d = np.asarray(SOFT.impedance(jnp.asarray(depths)))
    assert (np.diff(d) >= 0).all() and d[0] == SOFT.first and (d[20:] == SOFT.last).all()
    np.testing.assert_allclose(d[10], (SOFT.first + SOFT.last) / 2)
    slopes = jax.vmap(jax.grad(SOFT.impedance))(jnp.asarray(depths))
    assert np.isfinite(slopes).all() and slopes[5] < 0


def pressed(numbers):
    """Place and speed of a mass after it met its stop; of speed, decay, pull, inertia and width."""
    speed, *soft, width = numbers
    system, state = slider(0.01, -1.0)
    names = (*("decay", "pull", "inverse_inertia"), "width")
    values = dict(zip(names, (*soft, width), strict=True))
    system = system.with_numbers(
        {f"joint.rail.limits.reference.{name}": x for name, x in values.items()}
    )
    state = jj.replace(state, velocity=state.velocity.at[0, 0].set(speed))
    after, _ = jj.rollout(system, state, dt=DT, steps=15)
    return jnp.stack([after.position[0, 0], after.velocity[0, 0]])


@pytest.mark.slow
def test_derivatives_through_a_stop_are_finite_differences():
    at = np.array([-1.2, 80.0, 3e3, 2.0, 0.02])
    steps = 1e-5 * np.abs(at)
    values, forward, reverse = program(pressed)(np.stack([at, *points_about(at, steps)]))
    expected = slopes_between(values[1:], steps).T
    np.testing.assert_allclose(forward, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": 3.0}, "reference 3.0 must be a ReferenceAcceleration, or None"),
        ({"reference": SOFT, "stiffness": 1.0}, "has reference and stiffness; .* give one"),
        ({"reference": SOFT, "restitution": 0.5}, "has reference and restitution"),
        (
            {"reference": jj.ReferenceAcceleration(-1.0, 1.0, 1.0)},
            "reference decay -1.0 must be a number >= 0",
        ),
        (
            {"reference": jj.ReferenceAcceleration("quick", 1.0, 1.0)},
            "reference decay 'quick' must be a number >= 0",
        ),
        (
            {"reference": jj.ReferenceAcceleration(1.0, 1.0, 1.0, last=1.0)},
            "reference last 1.0 must lie between 0 and 1",
        ),
        (
            {"reference": jj.ReferenceAcceleration(1.0, 1.0, 1.0, width=0.0)},
            "width 0.0 must be > 0",
        ),
        ({"reference": jj.ReferenceAcceleration(1.0, 1.0, 1.0, power=0.5)}, "power 0.5 must be >="),
    ],
)
def test_bad_references_are_refused(options, message):
    with pytest.raises(ValueError, match=f"joint 'rail': Limits on coordinate 0: .*{message}"):
        slider(0.0, 0.0, jj.Limits(0.0, **options))

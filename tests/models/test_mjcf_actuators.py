"""Actuators and tendons of MJCF: what drives and couples joints there does so here."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import jaxjoints as jj  # noqa: E402
from jaxjoints.laws.transmissions import PolynomialRelation, Weighted  # noqa: E402
from jaxjoints.models import LoadError, LoadWarning, load_mjcf  # noqa: E402
from jaxjoints.models.mjcf_softness import softness  # noqa: E402
from support.accelerations import rates  # noqa: E402
from support.mujoco_states import accelerations_of, state_of  # noqa: E402

EXACT = 1e-12  # after a few products
SOLVED = 1e-9  # accelerations, relative to the largest

FINGER = """<body pos="0 {at} 0"><joint name="{name}" axis="0 1 0" {more}/>
  <geom size="0.1" mass="1" pos="0.3 0 0"/>{inner}</body>"""


def mechanism(chains, rest, option="", more=""):
    """A file of chains of links without contact, and what acts on them.

    chains: of each chain the names of its joints, one letter each
    """
    bodies = ""
    for i, chain in enumerate(chains):
        inner = ""
        for name in reversed(chain):
            inner = FINGER.format(at=i, name=name, more=more, inner=inner)
        bodies += inner
    return f"""<mujoco><compiler angle="radian"/><option timestep="0.001" {option}>
      <flag contact="disable"/></option><worldbody>{bodies}</worldbody>{rest}</mujoco>"""


GRIP = '<fixed name="grip"><joint joint="a" coef="0.5"/><joint joint="b" coef="0.5"/></fixed>'
STILL = 'gravity="0 0 0"'


def read(text, **options):
    """A model and MuJoCo's of the same file, without any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return load_mjcf(text, **options), mujoco.MjModel.from_xml_string(text)


@pytest.mark.slow
def test_a_servo_on_a_tendon_moves_a_gripper_as_in_mujoco():
    text = mechanism(
        ("a", "b"),
        f"""<tendon>{GRIP}</tendon>
        <actuator><position name="close" tendon="grip" kp="50" kv="20"/></actuator>""",
        STILL,
    )
    model, m = read(text)
    system, state = model.build()
    assert system.topology.transmissions == ("grip",)
    (servo,) = system.transmission("grip").laws
    assert [float(x) for x in (servo.stiffness, servo.damping)] == [50.0, 20.0]
    control = model.control(system, jnp.array([0.5]))
    np.testing.assert_array_equal(control.transmission_target, [0.5])
    by_name = system.control(target={"grip": 0.5})
    np.testing.assert_array_equal(by_name.transmission_target, control.transmission_target)
    assert control.target is by_name.target is None
    # In a batch each environment has its own target.
    targets = jnp.array([0.5, -0.2])
    control = model.control(system, targets[None])
    control = jax.tree.map(lambda x: jnp.repeat(x[None], 2000, axis=0), control)
    run = jax.jit(
        lambda s: jj.rollout(system, s, control, dt=1e-3, steps=2000, record_every=2000)[0].q
    )
    found = run(jj.replicate(state, 2))
    for i, target in enumerate(targets):
        d = mujoco.MjData(m)
        d.ctrl[:] = target
        mujoco.mj_step(m, d, 2000)
        assert abs(d.qpos).min() > 0.15
        # MuJoCo damps by the speed at the start of each step.
        np.testing.assert_allclose(found[:, i], d.qpos, atol=2e-5)


FORCES = mechanism(
    ("ab", "cd"),
    """<tendon>
      <fixed name="t" stiffness="30" damping="2" springlength="0.2" armature="0.3">
        <joint joint="a" coef="0.5"/><joint joint="b" coef="-0.8"/></fixed>
      <fixed name="u" actuatorfrcrange="-0.4 0.5" actuatorfrclimited="true">
        <joint joint="c" coef="1.5"/><joint joint="d" coef="0.3"/></fixed>
    </tendon><actuator>
      <position tendon="t" kp="50" kv="2" gear="2" ctrlrange="-1 1"/>
      <velocity tendon="t" kv="3" gear="-1.5"/>
      <general tendon="t" biastype="affine" biasprm="0.2 -5 -0.3" forcerange="-9 0.1"/>
      <motor tendon="u" gear="0.5"/>
      <position joint="a" kp="10"/><velocity joint="a" kv="1"/>
      <general joint="c" gear="1.5" gaintype="affine" gainprm="2 0.5 -0.3" biastype="affine"
        biasprm="0.2 -1 -0.4" forcerange="-20 0.3"/>
      <damper joint="d" kv="2" ctrlrange="0 3"/>
    </actuator>""",
    more='ref="0.1"',
)
CONTROLS = (3.0, 0.4, 1.0, 1.2, 0.3, -0.2, 0.7, 0.8)


def moving(m):
    """MuJoCo's data at a given state and controls."""
    d = mujoco.MjData(m)
    d.qpos[:] = m.qpos0 + np.linspace(-0.3, 0.4, m.nq)
    d.qvel[:] = np.linspace(0.5, -0.6, m.nv)
    d.ctrl[:] = CONTROLS[: m.nu]
    mujoco.mj_forward(m, d)
    return d


@pytest.mark.slow
def test_forces_of_actuators_and_tendons_are_those_of_mujoco():
    with pytest.warns(LoadWarning) as told:
        model = load_mjcf(FORCES)
    # Beside servos on one coordinate, one of limited force; then gains that depend on the motion.
    names = [f"actuator {i}" for i in (2, 6, 7)]
    assert len(model.notes) == 3 and not model.skipped
    for name, note in zip(names, model.notes, strict=True):
        assert note.startswith(f"actuator {name!r} (in line ") and "state=" in note
    assert "forces" not in str(told[0].message)
    system, _ = model.build()
    m = mujoco.MjModel.from_xml_string(FORCES)
    d = moving(m)
    state = state_of(model, system, m, d)
    with pytest.raises(ValueError, match="actuator 'actuator 2' depends on .* give state="):
        model.control(system, CONTROLS)
    values = jnp.array(CONTROLS)
    found, _ = rates(system, state, model.control(system, values, state=state))
    wanted, _ = accelerations_of(model, system, m, d)
    np.testing.assert_allclose(found, wanted, atol=SOLVED * np.abs(wanted).max())

    def drive(s):
        return model.control(system, values, state=s)

    run = jax.jit(lambda s, dt: jj.rollout(system, s, drive, dt=dt, steps=500, record_every=500)[0])
    off = []
    for dt, times in ((1e-3, 2), (5e-4, 4)):
        end = state
        for _ in range(times):
            end = run(end, dt)
        m.opt.timestep = dt
        d = moving(m)
        mujoco.mj_step(m, d, 500 * times)
        off.append(np.abs(np.asarray(end.q) - d.qpos).max())
    # Both are of first order, and MuJoCo's servos act by the motion at the start of each step.
    assert off[0] < 5e-3 and 0.4 < off[1] / off[0] < 0.6, off


EQUAL = mechanism(
    ("ab", "cd", "e", "fg", "h"),
    """<tendon>
      <fixed name="one"><joint joint="a" coef="0.5"/><joint joint="b" coef="-0.8"/></fixed>
      <fixed name="two"><joint joint="c" coef="0.5"/><joint joint="d" coef="-0.8"/></fixed>
      <fixed name="three"><joint joint="e" coef="1.5"/><joint joint="d" coef="0.3"/></fixed>
      <fixed name="four"><joint joint="f" coef="0.5"/><joint joint="g" coef="-0.8"/></fixed>
      <fixed name="five"><joint joint="h" coef="1.5"/><joint joint="g" coef="0.3"/></fixed>
    </tendon><default><equality solref="0.002 1"/></default><equality>
      <tendon name="alone" tendon1="one"/>
      <tendon name="line" tendon1="two" tendon2="three" polycoef="0 0.5 0 0 0"/>
      <tendon name="curve" tendon1="four" tendon2="five" polycoef="0 0.5 0.2 0.1 0"/>
    </equality><actuator><motor joint="a"/><motor joint="c"/><motor joint="f"/></actuator>""",
    STILL,
    more='ref="0.2" damping="0.3"',
)


def test_equalities_of_tendons_are_transmissions():
    model, m = read(EQUAL)
    system, state = model.build()
    assert system.topology.transmissions == ("alone", "line", "curve")
    kinds = [type(system.transmission(n).transmission) for n in system.topology.transmissions]
    assert kinds == [Weighted, Weighted, PolynomialRelation]
    random = np.random.default_rng(0)
    q = random.uniform(-1, 1, system.coordinates)
    length = {}
    for t in range(m.ntendon):
        rows = range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t])
        at = [system.coordinate("abcdefgh"[m.wrap_objid[w]]).start for w in rows]
        length[t] = m.wrap_prm[list(rows)] @ (q[at] - 0.2)
    polynomial = np.polynomial.Polynomial([0, 0.5, 0.2, 0.1])
    wanted = [length[0], length[1] - 0.5 * length[2], length[3] - polynomial(length[4])]
    for name, value in zip(system.topology.transmissions, wanted, strict=True):
        (group,) = (g for g in [system.transmission(name)])
        places = [system.coordinate(system.topology.joints[j]).start for j in group.joints[0]]
        found = group.transmission.value(jnp.asarray(q[places]))
        assert float(found[0]) == pytest.approx(value, abs=EXACT)


@pytest.mark.slow
def test_equalities_of_tendons_hold_as_in_mujoco():
    model, m = read(EQUAL)
    system, state = model.build()
    control = model.control(system, [1.0, 0.7, -0.5])
    run = jax.jit(
        lambda s: jj.rollout(system, s, lambda _: control, dt=1e-3, steps=1000, record_every=1000)[
            0
        ]
    )
    end = run(state)
    d = mujoco.MjData(m)
    d.ctrl[:] = 1.0, 0.7, -0.5
    mujoco.mj_step(m, d, 1000)
    assert np.abs(d.qpos - m.qpos0).max() > 0.5
    # MuJoCo's equalities give way; more, the softer their `solref`.
    np.testing.assert_allclose(end.q, d.qpos, atol=2e-4)


LIMITED = mechanism(
    ("ab", "cd", "e"),
    """<tendon>
      <fixed name="stop" limited="true" range="-0.1 0.15" margin="0.01"
        solreflimit="0.02 1" solimplimit="0.9 0.9 0.001">
        <joint joint="a" coef="0.5"/><joint joint="b" coef="-0.8"/></fixed>
      <fixed name="slack" stiffness="40" springlength="-0.1 0.1">
        <joint joint="c" coef="0.5"/><joint joint="d" coef="-0.8"/></fixed>
      <fixed name="of one joint" limited="true" range="-0.06 0.3"
        solreflimit="0.02 1" solimplimit="0.9 0.9 0.001"><joint joint="e" coef="-0.4"/></fixed>
    </tendon><actuator><motor joint="b"/><motor joint="c"/><motor joint="e"/></actuator>""",
    STILL,
    more='damping="0.8" stiffness="1"',
)


@pytest.mark.slow
def test_limits_and_slack_springs_of_tendons_rest_where_mujocos_do():
    model, m = read(LIMITED)
    system, state = model.build()
    control = model.control(system, [-1.5, 2.0, 1.5])
    run = jax.jit(
        lambda s: jj.rollout(system, s, lambda _: control, dt=2e-3, steps=5000, record_every=5000)[
            0
        ]
    )
    end = run(state)
    d = mujoco.MjData(m)
    d.ctrl[:] = -1.5, 2.0, 1.5
    mujoco.mj_step(m, d, 10000)
    lengths = d.ten_length
    assert lengths[0] > 0.141 and lengths[1] > 0.11 and lengths[2] < -0.06
    np.testing.assert_allclose(end.q, d.qpos, atol=1e-6)


def test_limits_of_a_tendon_along_one_joint_are_limits_of_the_joint():
    system, _ = read(LIMITED)[0].build()
    (stop,) = [law for law in system.joint("e").laws if isinstance(law, jj.Limits)]
    np.testing.assert_allclose([stop.lower, stop.upper], [-0.75, 0.15])
    # The stiffness along the tendon, times the square of its arm.
    m = read(LIMITED)[1]
    weight = m.tendon_invweight0[2]
    soft = softness(m.tendon_solref_lim[2], m.tendon_solimp_lim[2], weight, like_mujoco=False)
    k = soft["stiffness"]
    np.testing.assert_allclose(stop.stiffness, 0.4**2 * k)
    assert system.topology.transmissions == ("stop", "slack")


def test_laws_of_a_tendon_are_switched_off_by_flags():
    tendon = """<tendon><fixed name="t" stiffness="3" damping="2" springlength="0.2"
      frictionloss="0.4" armature="0.5" limited="true" range="-1 1"><joint joint="a" coef="2"/>
      <joint joint="b" coef="3"/></fixed></tendon>"""
    text = mechanism(("a", "b"), tendon)
    laws = read(text)[0].build()[0].transmission("t").laws
    kinds = ["SpringDamper", "Damping", "DryFriction", "Armature", "Limits"]
    assert [type(law).__name__ for law in laws] == kinds
    numbers = [law.stiffness for law in laws[:1]] + [laws[1].damping, laws[2].friction_force]
    assert [float(x) for x in [*numbers, laws[3].inertia]] == [3.0, 2.0, 0.4, 0.5]
    flags = ("spring", "damper", "frictionloss", "limit")
    off = "".join(f' {flag}="disable"' for flag in flags)
    text = text.replace('contact="disable"', f'contact="disable"{off}')
    laws = read(text)[0].build()[0].transmission("t").laws
    assert [type(law).__name__ for law in laws] == ["Armature"]


ACTIVE = mechanism(
    ("a",),
    """<actuator>
      <general joint="a" dyntype="filter" dynprm="0.03" gainprm="2" ctrlrange="-1 1"/>
      <motor joint="a"/>
      <general joint="a" dyntype="filterexact" dynprm="0.02" gear="3"/>
      <intvelocity joint="a" kp="4" kv="1" actrange="-0.02 0.02"/>
    </actuator>""",
    STILL,
)


def test_activations_follow_their_controls_as_in_mujoco():
    model, m = read(ACTIVE)
    system, _ = model.build()
    d = mujoco.MjData(m)
    values = jnp.array([[3.0, 0.5], [0.2, 0.0], [-1.0, 0.4], [0.9, -0.1]])
    with pytest.raises(ValueError, match="'actuator 0' has an activation; give activation="):
        model.control(system, values)
    with pytest.raises(ValueError, match=r"activation have shape \(2,\); give 3 first"):
        model.control(system, values, activation=[0.0, 0.0])
    activation = model.activation(2)
    assert activation.shape == (3, 2)
    for _ in range(40):
        d.ctrl[:] = np.asarray(values[:, 0])
        mujoco.mj_forward(m, d)
        control = model.control(system, values, activation=activation)
        a = np.asarray(activation[:, 0])
        efforts = d.actuator_force * m.actuator_gear[:, 0]
        assert float(control.effort[0, 0]) == pytest.approx(efforts[:3].sum(), abs=EXACT)
        assert float(control.target[0, 0]) == pytest.approx(a[2], abs=EXACT)
        mujoco.mj_step(m, d)
        activation = model.next_activation(activation, values, 1e-3)
        np.testing.assert_allclose(activation[:, 0], d.act, atol=EXACT)
    assert d.act[2] == 0.02 and d.act[0] > 0.5


@pytest.mark.slow
def test_activations_are_the_memory_of_a_controller():
    model, m = read(ACTIVE)
    system, state = model.build()

    def drive(state, inputs):
        control = model.control(system, inputs.shared, activation=inputs.memory)
        return control, model.next_activation(inputs.memory, inputs.shared, 1e-3)

    values = jnp.array([3.0, 0.2, -1.0, 0.9])
    controls = jj.Controller(drive, shared=values, memory=model.activation())
    end, _, controls = jj.rollout(system, state, controls, dt=1e-3, steps=500, record_every=500)
    d = mujoco.MjData(m)
    d.ctrl[:] = np.asarray(values)
    mujoco.mj_step(m, d, 500)
    np.testing.assert_allclose(controls.memory, d.act, atol=EXACT)
    assert abs(d.qpos[0]) > 0.1
    np.testing.assert_allclose(end.q, d.qpos, atol=2e-3)


def test_a_servo_is_limited_as_its_joint_or_tendon_is():
    text = mechanism(
        ("a", "bc"),
        """<tendon><fixed name="t" actuatorfrcrange="-0.5 0.5" actuatorfrclimited="true">
        <joint joint="b" coef="1"/><joint joint="c" coef="2"/></fixed></tendon><actuator>
        <position joint="a" kp="20" kv="1" gear="2"/>
        <position tendon="t" kp="20" kv="1" gear="2" forcerange="-3 3"/></actuator>""",
        STILL,
    )
    limit = 'name="a" actuatorfrcrange="-0.7 0.7" actuatorfrclimited="true"'
    model, m = read(text.replace('name="a"', limit))
    system, _ = model.build()
    servos = [system.joint("a").laws[0], system.transmission("t").laws[0]]
    d = mujoco.MjData(m)
    d.ctrl[:] = 9.0
    mujoco.mj_forward(m, d)
    # Of the joint, and of the tendon with the first of its arms.
    efforts = [float(servo.effort) for servo in servos]
    np.testing.assert_allclose(efforts, d.qfrc_actuator[:2], atol=EXACT)


def test_the_limit_of_a_joint_bounds_its_servo_beside_a_motor():
    text = mechanism(
        ("a",),
        """<actuator><position joint="a" kp="20" kv="1" forcerange="-3 3"/>
        <motor joint="a" ctrlrange="-1 1"/></actuator>""",
        STILL,
    )
    limit = 'name="a" actuatorfrcrange="-0.7 0.7" actuatorfrclimited="true"'
    told = r"joint 'a' \(in line \d+\): actuatorfrcrange bounds its servo and its efforts, each"
    with pytest.warns(LoadWarning, match=told):
        model = load_mjcf(text.replace('name="a"', limit))
    system, _ = model.build()
    assert float(system.joint("a").laws[0].effort) == 0.7
    # Without a limit of the joint its servo keeps its own, and nothing is told.
    model, _ = read(text)
    assert float(model.build()[0].joint("a").laws[0].effort) == 3.0


OUT = mechanism(
    ("a", "b"),
    """
    <tendon><fixed name="t"><joint joint="a" coef="1"/><joint joint="b" coef="2"/></fixed>
      <fixed name="twin"><joint joint="a" coef="1"/><joint joint="b" coef="2"/></fixed>
      <spatial name="rope"><site site="s"/><site site="z"/></spatial></tendon>
    <equality>
      <tendon name="knot" tendon1="t" tendon2="rope"/>
      <tendon name="nothing" tendon1="t" tendon2="twin"/></equality>
    <actuator>
      <muscle name="m" joint="a" lengthrange="0 1"/>
      <motor name="pull" tendon="rope"/>
      <position name="place" site="s" refsite="z" kp="3"/>
      <motor name="twist" joint="ball"/>
    </actuator>""",
).replace(
    "<worldbody>",
    """<worldbody><site name="z" pos="0 0 1"/><body pos="9 0 0"><joint name="ball" type="ball"/>
    <geom size="0.1"/><site name="s"/></body>""",
)
LEFT_OUT = (
    ("spatial tendon 'rope'", "rope"),
    ("equality 'knot', of the spatial tendon 'rope'", "knot"),
    ("equality 'nothing', whose two sides move alike: it holds nothing", "nothing"),
    ("actuator 'm', whose dyntype muscle is not simulated", '"m"'),
    ("actuator 'pull', which acts on the spatial tendon 'rope'", "pull"),
    ("actuator 'place', which acts on a site", "place"),
    ("actuator 'twist', which acts on the ball joint 'ball'", "twist"),
)


def test_what_stays_out_is_said_once_with_its_line():
    with pytest.warns(LoadWarning) as told:
        model = load_mjcf(OUT)
    lines = OUT.split("\n")
    wanted = set()
    for sentence, mark in LEFT_OUT:
        line = next(i for i, text in enumerate(lines, 1) if "name=" in text and mark in text)
        wanted.add(f"{sentence} (in line {line})")
    assert set(model.skipped) == wanted
    assert len(told) == 1 and str(told[0].message).startswith("<text>: not all of it")
    system, _ = model.build()
    assert model.control(system, [0.0] * 5).effort is None
    with pytest.raises(LoadError, match="actuator 'place', which acts on a site"):
        load_mjcf(OUT, strict=True)


def test_a_tendon_that_is_called_as_a_joint_is_told_from_it():
    text = mechanism(
        ("a", "b"),
        """<tendon><fixed name="a"><joint joint="a" coef="1"/><joint joint="b" coef="2"/></fixed>
        </tendon><actuator><position tendon="a" kp="3"/><position joint="a" kp="5"/></actuator>""",
    )
    model, _ = read(text)
    system, _ = model.build()
    assert system.topology.transmissions == ("tendon a",)
    control = model.control(system, [0.4, 0.6])
    np.testing.assert_allclose(control.target[system.coordinate("a")], [0.6], atol=EXACT)
    np.testing.assert_allclose(control.transmission_target, [0.4], atol=EXACT)


def test_a_polynomial_relation_has_the_slope_of_its_polynomial():
    """At 0 too, where powers of the leading sum have none."""
    follower, leader = np.array([0.0, 0.4, 1.5]), np.array([1.2, -0.7, 0.0])
    polynomial = np.polynomial.Polynomial([0.1, 0.5, -0.2, 0.3])
    relation = PolynomialRelation(*map(jnp.asarray, (follower, leader, polynomial.coef)))
    for q in (np.zeros(3), np.array([0.3, -0.5, 0.8])):
        x = leader @ q
        assert float(relation.value(jnp.asarray(q))[0]) == pytest.approx(
            follower @ q - polynomial(x), abs=EXACT
        )
        slope = jax.grad(lambda q: relation.value(q)[0])(jnp.asarray(q))
        wanted = follower - polynomial.deriv()(x) * leader
        np.testing.assert_allclose(slope, wanted, atol=EXACT)

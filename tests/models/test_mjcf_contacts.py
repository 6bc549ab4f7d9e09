"""Contacts of MJCF: which geoms touch, with what numbers, and what is said of those that do not."""

import warnings

import jax
import numpy as np
import pytest

mujoco = pytest.importorskip("mujoco")

import jaxjoints as jj  # noqa: E402
from jaxjoints import shapes  # noqa: E402
from jaxjoints.models import LoadWarning, load_mjcf  # noqa: E402
from jaxjoints.models.geometry import Mesh  # noqa: E402

TETRAHEDRON = "0 0 0  0.3 0 0  0 0.3 0  0 0 0.3"
KINDS = f"""<mujoco>
  <asset><mesh name="wedge" vertex="{TETRAHEDRON}"/>
    <hfield name="hills" nrow="3" ncol="4" size="2 1 0.5 0.1"
      elevation="0 0 0 0.1  0 0 0.3 0.2  0 0 0.1 1"/></asset>
  <worldbody><geom name="floor" type="plane" size="1 1 1"/>
    <geom name="hills" type="hfield" hfield="hills" pos="5 0 0"/>
    <body name="a" pos="0 0 0.4"><freejoint/>
      <geom name="drum" type="cylinder" size="0.1 0.2"/>
      <geom name="egg" type="ellipsoid" size="0.1 0.1 0.2"/></body>
    <body name="b" pos="0 1 0.4"><freejoint/><geom name="wedge" type="mesh" mesh="wedge"/></body>
    <body name="c" pos="0 2 0.4"><freejoint/><geom name="crate" type="box" size="0.1 0.1 0.1"/>
      <geom name="post" type="capsule" size="0.05 0.1" pos="0 0 0.2"/></body>
  </worldbody>
</mujoco>"""


def loaded(text, told, **options):
    with pytest.warns(LoadWarning) as warned:
        model = load_mjcf(text, **options)
    (message,) = (str(one.message) for one in warned)
    for sentence in told:
        assert sentence in message
    return model


def points_of(model, name):
    return [one for one in model.build()[0].topology.contacts if one.split("/")[0] == name]


def test_geoms_of_all_kinds_touch_planes_and_height_fields():
    unknown = [
        "contact of 1 pairs of geoms ellipsoid-plane, without a gap function",
        "contact of 1 pairs of geoms ellipsoid-hfield, without a gap function",
    ]
    advice = "contact of 8 pairs of geoms; contacts='all' adds those of bodies with each other"
    model = loaded(KINDS, [*unknown, advice], contacts=True)
    system, _ = model.build()
    counts = {"drum": 4, "wedge": 4, "crate": 8, "post": 2}
    for ground in ("floor", "hills"):
        for geom, count in counts.items():
            assert len(points_of(model, f"{geom} on {ground}")) == count
    assert len(system.topology.contacts) == 2 * sum(counts.values())
    field = system.contact("post on hills/0").geometry.shape_D
    assert isinstance(field, shapes.HeightField)
    m = mujoco.MjModel.from_xml_string(KINDS)
    np.testing.assert_allclose(field.heights[:, 2], 0.5 * m.hfield_data[8:], atol=1e-7)
    np.testing.assert_allclose(field.size, [4.0, 2.0])
    # The page shows it too.
    (seen,) = [x.shape for x in model.visuals if x.body == jj.WORLD and isinstance(x.shape, Mesh)]
    np.testing.assert_allclose(seen.vertices.min(0), [-2.0, -1.0, 0.0])
    np.testing.assert_allclose(seen.vertices[-1], [2.0, 1.0, 0.5 * m.hfield_data[-1]])
    n = np.cross(
        *(seen.vertices[seen.faces[:, k]] - seen.vertices[seen.faces[:, 0]] for k in (1, 2))
    )
    assert (n[:, 2] > 0).all()


def test_all_adds_what_has_a_gap_function_and_says_what_has_none():
    without = ["box-cylinder", "box-mesh", "cylinder-mesh", "capsule-ellipsoid", "ellipsoid-plane"]
    told = [f"contact of 1 pairs of geoms {names}, without a gap function" for names in without]
    model = loaded(KINDS, told, contacts="all")
    assert not any("contacts='all'" in line for line in model.skipped)


PAIRS = """<mujoco><option cone="{cone}"/><worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <geom name="table" type="box" size="0.5 0.5 0.1" pos="0 3 0.1"/>
    <body name="a" pos="0 3 0.36"><freejoint/>
      <geom name="crate" type="box" size="0.2 0.15 0.15" mass="2"/></body>
    <body name="b" pos="3 0 0.3"><freejoint/>
      <geom name="drum" type="cylinder" size="0.1 0.2" mass="2"/></body>
  </worldbody><contact>
    <pair geom1="table" geom2="crate" condim="6" friction="{friction} 0.02 0.003 0.003"
      margin="0.01" solref="0.04 0.9" solimp="0.8 0.8 0.001"/>
    <exclude body1="world" body2="b"/><exclude body1="a" body2="b"/>
  </contact></mujoco>"""


@pytest.mark.slow
def test_pairs_touch_with_their_own_numbers():
    text = PAIRS.format(cone="elliptic", friction="0.3 0.3")
    model = load_mjcf(text, contacts=True, strict=True)
    assert len(points_of(model, "drum on floor")) == 0
    assert len(points_of(model, "crate on floor")) == len(points_of(model, "crate on table")) == 8
    system, state = model.build()
    limits, *friction = system.contact("crate on table/0").laws
    assert float(limits.lower) == 0.01
    assert [float(law.friction) for law in friction] == [0.3, 0.3, 0.003, 0.003, 0.02]
    assert [law.across for law in friction[:2]] == [2, 1]
    # Its softness is MuJoCo's of one contact.
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    d.qpos[2] = 0.355
    mujoco.mj_forward(m, d)
    K, B, impedance, _ = d.efc_KBIP[0]
    assert float(limits.stiffness) == pytest.approx(K * impedance / d.efc_R[0], rel=1e-9)
    assert float(limits.damping) == pytest.approx(B / d.efc_R[0], rel=1e-9)
    run = jax.jit(lambda s: jj.rollout(system, s, dt=2e-3, steps=500, record_every=500)[0])
    mujoco.mj_step(m, d, 1000)
    depth = 0.36 - d.qpos[2]
    assert depth > 1e-4
    i = system.body("a")
    assert 0.36 - float(run(state).position[2, i]) == pytest.approx(depth, rel=1e-2)


def test_friction_that_differs_along_the_tangents_is_a_pyramid():
    note = "'crate': its friction (0.3, 0.5) differs along the tangents"
    model = loaded(PAIRS.format(cone="elliptic", friction="0.3 0.5"), [note], contacts=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = load_mjcf(PAIRS.format(cone="pyramidal", friction="0.3 0.5"), contacts=True)
    for one in (model, other):
        laws = one.build()[0].contact("crate on table/0").laws
        assert [float(law.friction) for law in laws[1:3]] == [0.3, 0.5]
        assert [law.across for law in laws[1:3]] == [None, None]


def test_what_contacts_have_besides_is_told():
    text = PAIRS.format(cone="pyramidal", friction="0.3 0.3")
    text = text.replace('solref="0.04 0.9"', 'solreffriction="0.1 1"')
    loaded(text, ["solreffriction of pairs"], contacts=True)
    loaded(text, ["contacts=True adds those with planes, height fields and pairs of the file"])
    dense = " ".join(f"{x:.6f}" for x in np.random.default_rng(0).normal(size=300))
    text = f"""<mujoco><asset><mesh name="rock" vertex="{dense}"/></asset><worldbody>
      <geom type="plane" size="1 1 1"/><body pos="0 0 5"><freejoint/>
      <geom type="mesh" mesh="rock"/></body></worldbody></mujoco>"""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_mjcf(text, contacts=True)


GAPS = """<mujoco><option gravity="0 0 0"/><worldbody>
  <geom name="floor" type="plane" size="1 1 1" margin="0.01" gap="0.004"/>
  <body name="ball" pos="0 0 1"><freejoint/>
    <geom name="ball" size="0.1" mass="1" margin="0.02" gap="0.006"/></body>
  </worldbody><contact>{pair}</contact></mujoco>"""
OF_PAIR = '<pair geom1="floor" geom2="ball" margin="0.015" gap="0.007"/>'


@pytest.mark.slow
@pytest.mark.parametrize(("pair", "margin", "gap"), [("", 0.03, 0.01), (OF_PAIR, 0.015, 0.007)])
def test_geoms_with_a_gap_push_where_they_do_in_mujoco(pair, margin, gap):
    text = GAPS.format(pair=pair)
    m = mujoco.MjModel.from_xml_string(text)
    d = mujoco.MjData(m)
    heights = 0.1 + margin + gap * np.array([-2.0, -0.5, 0.5])
    pushed = []
    for height in heights:
        d.qpos[2] = height
        mujoco.mj_forward(m, d)
        pushed.append(bool(d.qacc[2] > 0))
        if height == heights[0]:
            # The distance below which MuJoCo lets them push.
            nearest = float(d.contact[0].includemargin)
    assert pushed[0] and not pushed[2]
    system, _ = load_mjcf(text, contacts=True, strict=True).build()
    lower = float(system.contact("ball on floor").laws[0].lower)
    assert lower == pytest.approx(nearest, abs=1e-12)
    place = np.zeros((3, 3))
    place[2] = heights
    with pytest.warns(UserWarning, match="'ball on floor': its gap starts at"):
        states = system.state(pose={"ball": place})
    acceleration = jj.dynamics.accelerations(system, states).linear[2, 0]
    assert (np.asarray(acceleration) > 0).tolist() == pushed


def test_friction_is_mujocos_where_that_is_asked_for():
    told = "'floor' and 'roller': friction (1.0, 1.0), condim 6, cone pyramidal"
    text = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1" condim="1"/>
      <body pos="0 0 1"><freejoint/><geom name="ball" size="0.1" friction="1.5 0 0"/>
        <geom name="slick" size="0.1" pos="1 0 0" condim="1"/>
        <geom name="roller" size="0.1" pos="2 0 0" condim="6"/>
      </body></worldbody></mujoco>"""
    options = {"contacts": True, "like_mujoco": True}
    model = loaded(text, [told], **options)
    system, _ = model.build()
    kinds = {name: type(system.contact(name).laws[0]) for name in system.topology.contacts}
    assert kinds == {
        "ball on floor": jj.ContactPyramid,
        "slick on floor": jj.ContactLimits,
        "roller on floor": jj.ContactLimits,
    }
    np.testing.assert_allclose(system.contact("ball on floor").laws[0].friction, 1.5)
    elliptic = text.replace("<mujoco>", '<mujoco><option cone="elliptic"/>')
    model = loaded(elliptic, ["'ball': friction (1.5, 1.5), condim 3, cone elliptic"], **options)
    system, _ = model.build()
    first = system.contact("ball on floor").laws[0]
    assert type(first) is jj.ContactLimits and first.reference is not None
    with pytest.raises(ValueError, match="like_mujoco 'yes' must be True or False"):
        load_mjcf(text, contacts=True, like_mujoco="yes")

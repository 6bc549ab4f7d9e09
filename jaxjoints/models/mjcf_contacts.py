"""Contacts of MJCF: which geoms touch, with what shapes, friction, softness and margin."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..couplings import shapes
from ..model.system import WORLD
from .errors import refusing
from .mechanism import Assembly
from .mjcf_softness import LEAST
from .touching import read_hull

# Versions of MuJoCo from which on the margins of two geoms are added, where the larger one counted,
# and contacts within the gap, which have no force, lie beyond the margin, where they lay within.
ADDED_MARGINS, GAP_BEYOND_MARGIN = (3, 5), (3, 9)
# No less friction is in contacts of MuJoCo.
LEAST_FRICTION = 1e-5


def add_contacts(reader: Any, assembly: Assembly, wanted: bool | str, *, like_mujoco: bool) -> None:
    """Add the contacts of a `_Reader` of MJCF to the builder of an assembly.

    wanted: True for contacts with planes and height fields, and those of `<pair>`; "all" for those
        of all geoms that have a gap function; False for none, which are listed as skipped
    like_mujoco: with MuJoCo's softness and, of one μ alone, its friction
    """
    if not reader.disabled("CONTACT"):
        _Contacts(reader, assembly, like_mujoco).add(wanted)


class _Contacts:
    """Reads the contacts of MuJoCo's compiled model `m`."""

    def __init__(self, reader: Any, assembly: Assembly, like_mujoco: bool):
        self.reader, self.m, self.kind, self.report = reader, reader.m, reader.kind, reader.report
        self.assembly, self.like_mujoco = assembly, like_mujoco
        self.names = reader.names["GEOM"]
        # Of each mesh that touches, once.
        self.hulls: dict[int, shapes.ConvexMesh | None] = {}
        # How often two geoms touch: a file may pair them twice, and MuJoCo then has two contacts.
        self.paired: Counter = Counter()

    def add(self, wanted: bool | str) -> None:
        """See `add_contacts`."""
        m = self.m
        grounds = self.kind["mjGEOM_PLANE"], self.kind["mjGEOM_HFIELD"]
        unknown: Counter = Counter()
        left_out, added = 0, False
        pairs = [(p, *(int(m[p]) for m in (m.pair_geom1, m.pair_geom2))) for p in range(m.npair)]
        pairs += [(None, *both) for both in self._meeting()]
        for pair, one, other in pairs:
            if pair is not None and len({self._carrier(g) for g in (one, other)}) == 1:
                self.report.skip("contact pair of geoms that are fixed to each other")
                continue
            if m.geom_type[other] in grounds:
                one, other = other, one
            on_ground = m.geom_type[one] in grounds
            if not wanted or not (on_ground or pair is not None or wanted == "all"):
                left_out += 1
            elif self._add_contact(other, one, pair):
                added = True
            else:
                names = sorted(self._kind_of(g) for g in (one, other))
                unknown["-".join(names)] += 1
        if left_out:
            advice = (
                "contacts='all' adds those of bodies with each other"
                if wanted
                else "contacts=True adds those with planes, height fields and pairs of the file"
            )
            self.report.skip(f"contact of {left_out} pairs of geoms; {advice}")
        for names, count in sorted(unknown.items()):
            self.report.skip(f"contact of {count} pairs of geoms {names}, without a gap function")
        if added:
            self._list_skipped_of_contacts()

    def _list_skipped_of_contacts(self) -> None:
        """List what geoms and pairs say of contacts that are added, and what is not read."""
        m = self.m
        fields = "geom_surfacevel", "geom_adhesion", "pair_adhesion", "pair_solreffriction"
        for field in fields:
            if self.reader.optional(field).any():
                kind, what = field.split("_")
                self.report.skip(f"{what} of {kind}s")
        if m.opt.enableflags & int(self.reader.mujoco.mjtEnableBit.mjENBL_OVERRIDE):
            self.report.skip("override of what contacts are like")

    def _carrier(self, g: int) -> str:
        """The body of the builder that carries a geom."""
        return self.reader.geom_frame(self.assembly, g)[0]

    def _kind_of(self, g: int) -> str:
        """Name of the kind of a geom."""
        kind = self.m.geom_type[g]
        prefix = "mjGEOM_"
        names = {n: name for name, n in self.kind.items() if name.startswith(prefix)}
        return names.get(int(kind), str(kind)).removeprefix(prefix).lower()

    def _meeting(self) -> Iterator[tuple[int, int]]:
        """Pairs of geoms that may touch, as MuJoCo chooses them beside those that are named."""
        m = self.m
        excluded = {int(x) for x in m.exclude_signature}
        named = {frozenset(pair) for pair in zip(m.pair_geom1, m.pair_geom2, strict=True)}
        welded = [int(m.body_weldid[body]) for body in m.geom_bodyid]
        above = [int(m.body_weldid[m.body_parentid[body]]) for body in welded]
        for g in range(m.ngeom):
            for f in range(g):
                meet = m.geom_contype[g] & m.geom_conaffinity[f]
                meet = meet or m.geom_contype[f] & m.geom_conaffinity[g]
                ids = sorted(int(m.geom_bodyid[x]) for x in (f, g))
                if not meet or welded[f] == welded[g] or (ids[0] << 16) + ids[1] in excluded:
                    continue
                next_to = above[f] == welded[g] or above[g] == welded[f]
                if next_to and welded[f] and welded[g] and not self.reader.disabled("FILTERPARENT"):
                    continue
                if frozenset((f, g)) not in named:
                    yield f, g

    def _add_contact(self, other: int, one: int, pair: int | None) -> bool:
        """Let two geoms touch, of which `one` may be the ground; False without a gap function.

        pair: index of the `<pair>` that names them, or None
        """
        with refusing(self.reader.refuse("GEOM", other)):
            parent, (R_D, p_D) = self.reader.geom_frame(self.assembly, one)
            child, (R_C, p_C) = self.reader.geom_frame(self.assembly, other)
            if child == WORLD:
                one, other, parent, child = other, one, child, parent
                R_C, p_C, R_D, p_D = R_D, p_D, R_C, p_C
            shape_C, shape_D = self._touching(other), self._touching(one)
            if shape_C is None or shape_D is None or shapes.candidates(shape_C, shape_D) is None:
                return False
            surface = self._surface(one, other) if pair is None else self._surface_of_pair(pair)
            name = f"{self.assembly.prefix}{self.names[other]} on {self.names[one]}"
            self.paired[name] += 1
            self.assembly.builder.contact(
                name + "'" * (self.paired[name] - 1),
                *(shape_C, shape_D),
                child=child,
                parent=parent,
                frame_C=(p_C, R_C),
                frame_D=(p_D, R_D),
                **surface,
            )
            return True

    def _touching(self, g: int) -> shapes.Shape | None:
        """The shape that touches in place of a geom."""
        a, b, c = (float(x) for x in self.m.geom_size[g])
        kind = int(self.m.geom_type[g])
        if kind == self.kind["mjGEOM_MESH"]:
            return self._hull(int(self.m.geom_dataid[g]))
        if kind == self.kind["mjGEOM_HFIELD"]:
            heights, size = self.reader.heights(g)
            return shapes.HeightField(heights, size) if min(heights.shape) > 2 else None
        makers: dict[int, Callable[[], shapes.Shape]] = {
            self.kind["mjGEOM_PLANE"]: shapes.HalfSpace,
            self.kind["mjGEOM_SPHERE"]: lambda: shapes.Sphere(a),
            self.kind["mjGEOM_CAPSULE"]: lambda: shapes.Capsule(a, 2 * b),
            self.kind["mjGEOM_CYLINDER"]: lambda: shapes.Cylinder(a, 2 * b),
            self.kind["mjGEOM_BOX"]: lambda: shapes.Box((2 * a, 2 * b, 2 * c)),
        }
        return makers[kind]() if kind in makers else None

    def _hull(self, i: int) -> shapes.Shape | None:
        """The convex hull of a mesh; None for a flat one."""
        if i not in self.hulls:
            m = self.m
            points = m.mesh_vert[m.mesh_vertadr[i] : m.mesh_vertadr[i] + m.mesh_vertnum[i]]
            self.hulls[i] = read_hull(f"mesh {self.reader.names['MESH'][i]!r}", points, self.report)
        return self.hulls[i]

    def _surface(self, one: int, other: int) -> dict[str, Any]:
        """Friction and softness of what two geoms touch with, for `SystemBuilder.contact`."""
        m, pair = self.m, [one, other]
        both = np.array([[x[one], x[other]] for x in (m.geom_margin, m.geom_gap)], float)
        added = self._version() >= ADDED_MARGINS
        margin = self._reach(*(both.sum(axis=1) if added else both.max(axis=1)))
        first, second = (int(m.geom_priority[x]) for x in pair)
        if first != second:
            # Of two geoms the one of higher priority counts.
            pair = [one if first > second else other]
        solref, solimp = (
            np.array([getattr(m, field)[x] for x in pair])
            for field in ("geom_solref", "geom_solimp")
        )
        # Otherwise the means with the weights `solmix`, of which 0 counts beside 0 alone.
        weights = np.array([m.geom_solmix[x] for x in pair])
        weights = np.where(weights < LEAST, 0.0, weights)
        weights = weights if weights.any() else np.ones(len(pair))
        weights = weights / weights.sum()
        mixed = weights @ solref if (solref[:, 0] > 0).all() else solref.min(axis=0)
        slide, spin, roll = np.max([m.geom_friction[x] for x in pair], axis=0)
        dimension = max(int(m.geom_condim[x]) for x in pair)
        friction = np.array([slide, slide, spin, roll, roll])
        return self._contact(one, other, friction, dimension, mixed, weights @ solimp, margin)

    def _surface_of_pair(self, i: int) -> dict[str, Any]:
        """The same of a `<pair>`, which has numbers of its own."""
        m = self.m
        geoms = int(m.pair_geom1[i]), int(m.pair_geom2[i])
        margin = self._reach(float(m.pair_margin[i]), float(m.pair_gap[i]))
        softness = m.pair_solref[i], m.pair_solimp[i], margin
        return self._contact(*geoms, m.pair_friction[i], int(m.pair_dim[i]), *softness)

    def _reach(self, margin: float, gap: float) -> float:
        """Distance below which MuJoCo lets two geoms push each other [m]."""
        return float(margin if self._version() >= GAP_BEYOND_MARGIN else margin - gap)

    def _version(self) -> tuple[int, ...]:
        """Version of the MuJoCo that is installed, its first two numbers."""
        return tuple(int(x) for x in self.reader.mujoco.__version__.split(".")[:2])

    def _contact(
        self,
        one: int,
        other: int,
        friction: np.ndarray,
        dimension: int,
        solref: np.ndarray,
        solimp: np.ndarray,
        margin: float,
    ) -> dict[str, Any]:
        """Arguments of `SystemBuilder.contact`.

        friction: along two tangents, about the normal and about two tangents; dimension: `condim`
        """
        m = self.m
        inverse = sum(float(m.body_invweight0[m.geom_bodyid[x], 0]) for x in (one, other))
        share = 1.0
        if dimension >= 3 and m.opt.cone == int(self.reader.mujoco.mjtCone.mjCONE_PYRAMIDAL):
            # The 2 (dimension - 1) edges of a pyramid, each a row with 2 μ² (1 + μ²) of this,
            # share the normal force.
            μ = max(float(friction[0]), LEAST_FRICTION)
            inverse *= 1 + μ**2
            share = μ**2 / (max(float(m.opt.impratio), LEAST) * (dimension - 1))
        soft = self.reader.softness(solref, solimp, inverse, share)
        slides, rolls = (tuple(float(x) for x in friction[at]) for at in ([0, 1], [3, 4]))
        alike = slides[0] == slides[1]
        elliptic = m.opt.cone == int(self.reader.mujoco.mjtCone.mjCONE_ELLIPTIC)
        if elliptic and not alike and dimension >= 3:
            names = " and ".join(repr(self.names[g]) for g in (one, other))
            self.report.notes.append(
                f"pair of geoms {names}: its friction {slides} differs along the tangents, so that "
                "it is a pyramid in place of an elliptic cone"
            )
        cone = "round" if elliptic and alike else "pyramid"
        if self.like_mujoco and dimension == 3 and alike and not elliptic:
            cone = "convex"
        elif self.like_mujoco and dimension >= 3:
            names = " and ".join(repr(self.names[g]) for g in (one, other))
            self.report.notes.append(
                f"pair of geoms {names}: friction {slides}, condim {dimension}, cone "
                f"{'elliptic' if elliptic else 'pyramidal'}, so that its friction is Coulomb's; "
                "MuJoCo's is offered for one μ alone, of condim 3 and a pyramid"
            )
        return {
            "friction": (slides[0] if alike else slides) if dimension >= 3 else 0.0,
            "spinning": float(friction[2]) if dimension >= 4 else 0.0,
            "rolling": (rolls[0] if rolls[0] == rolls[1] else rolls) if dimension >= 6 else 0.0,
            **soft,
            "margin": margin,
            "cone": cone,
        }

// The three-dimensional picture: shapes, joints, limits, arrows and traces at one time.
"use strict";

const {
  BoxGeometry, BufferGeometry, BufferAttribute, Color, ConeGeometry, CylinderGeometry, DirectionalLight, DoubleSide,
  DynamicDrawUsage, Fog, FrontSide, GridHelper, Group, HemisphereLight, InstancedMesh, Line2, LineGeometry, LineMaterial,
  Matrix4, Mesh, MeshBasicMaterial, MeshStandardMaterial, OrbitControls, PCFShadowMap, PerspectiveCamera,
  PlaneGeometry, Quaternion, Raycaster, RingGeometry, Scene, ShadowMaterial, SphereGeometry, Vector2, Vector3,
  WebGLRenderer,
} = vendor;

const BACKGROUND = 0xedf0f4;
const RED_GREEN_BLUE = [0xd0483e, 0x4a9a4f, 0x3b6fc4];
const COLORS = {
  joint: 0x46515e, axis: 0x7b3fa0, limit: 0x5a9bd4, active: 0xd0342c, needle: 0x2f6db3, bound: 0x24527f,
  force: 0xe07b1a, moment: 0x8a4fbf, contact: 0x159a77, com: 0x20262e,
};
const GHOST = 0.22; // opacity of the environments behind the one in front
const LAYERS = {
  geometry: "geometry", skeleton: "joint rods", inertia: "inertia", com: "mass centres", joints: "joints", axes: "axes",
  limits: "limits", forces: "forces", moments: "moments", contacts: "contacts", frames: "frames",
  traces: "traces", names: "names", ground: "ground",
};

const size = motion.size;
const up = new Vector3(...motion.up);
const upright = new Quaternion().setFromUnitVectors(new Vector3(0, 0, 1), up);
const centre = new Vector3(...motion.box[0]).add(new Vector3(...motion.box[1])).multiplyScalar(0.5);

// What the controls change.
const shown = Object.fromEntries(Object.keys(LAYERS).map((layer) => [layer, false]));
const choice = { time: start, front: 0, side: motion.side, arrows: 1, follow: motion.follow };

const renderer = new WebGLRenderer({ canvas: document.getElementById("scene"), antialias: true });
renderer.setPixelRatio(Math.min(window.devicePixelRatio, 2));
renderer.shadowMap.enabled = true;
renderer.shadowMap.type = PCFShadowMap;
const picture = new Scene();
picture.background = new Color(BACKGROUND);
picture.fog = new Fog(BACKGROUND, 1, 2);
const camera = new PerspectiveCamera(35, 1, 0.01, 1000);
camera.up.copy(up);
const orbit = new OrbitControls(camera, renderer.domElement);

// Shapes of unit size; cylinder and cone stand along z.
const shapes = {
  box: new BoxGeometry(1, 1, 1),
  sphere: new SphereGeometry(0.5, 32, 20),
  cylinder: new CylinderGeometry(0.5, 0.5, 1, 32).rotateX(Math.PI / 2),
  cone: new ConeGeometry(0.5, 1, 24).rotateX(Math.PI / 2),
  plane: new PlaneGeometry(1, 1),
};
motion.meshes.forEach((mesh, i) => {
  const geometry = new BufferGeometry();
  const vertices = decoded(mesh.vertices), faces = decoded(mesh.faces);
  geometry.setAttribute("position", new BufferAttribute(vertices.values, 3));
  geometry.setIndex(new BufferAttribute(faces.values, 1));
  // Corners of their own, so that each face has its own normal and edges stay sharp.
  shapes[`mesh${i}`] = geometry.toNonIndexed();
  shapes[`mesh${i}`].computeVertexNormals();
});

// Layers that are seen through the geometry of bodies, which would hide them.
const THROUGH = motion.drawn ? new Set(["com", "joints", "axes", "limits", "forces", "moments", "frames"]) : new Set();

/** All instances of one shape in one layer with one opacity. */
class Swarm {
  constructor(shape, layer, opacity, flat) {
    this.layer = layer;
    const options = { transparent: opacity < 1, opacity, depthWrite: opacity >= 1, side: /^(mesh|plane|sector)/.test(shape) ? DoubleSide : FrontSide };
    this.material = flat
      ? new MeshBasicMaterial(options)
      : new MeshStandardMaterial({ ...options, roughness: 0.62, metalness: 0.04 });
    this.shape = shapes[shape];
    this.through = THROUGH.has(layer);
    if (this.through) Object.assign(this.material, { depthTest: false, depthWrite: false, transparent: true });
    this.shadow = opacity >= 1 && !flat && !this.through;
    this.allocate(64);
  }

  allocate(capacity) {
    const old = this.mesh;
    this.mesh = new InstancedMesh(this.shape, this.material, capacity);
    this.mesh.instanceMatrix.setUsage(DynamicDrawUsage);
    this.mesh.setColorAt(0, new Color());
    this.mesh.frustumCulled = false;
    this.mesh.renderOrder = this.through ? 1 : 0;
    this.mesh.castShadow = this.shadow;
    this.mesh.receiveShadow = this.shadow;
    this.mesh.count = 0;
    this.mesh.owners = [];
    if (old) {
      this.mesh.instanceMatrix.array.set(old.instanceMatrix.array);
      this.mesh.instanceColor.array.set(old.instanceColor.array);
      this.mesh.count = old.count;
      this.mesh.owners = old.owners;
      picture.remove(old);
      old.dispose();
    }
    picture.add(this.mesh);
  }

  add(matrix, color, owner) {
    if (this.mesh.count === this.mesh.instanceMatrix.count) this.allocate(2 * this.mesh.count);
    this.mesh.setMatrixAt(this.mesh.count, matrix);
    this.mesh.setColorAt(this.mesh.count, color);
    this.mesh.owners[this.mesh.count] = owner;
    this.mesh.count++;
  }

  finish() {
    this.mesh.instanceMatrix.needsUpdate = true;
    this.mesh.instanceColor.needsUpdate = true;
    this.mesh.boundingSphere = null;
  }
}

const swarms = new Map();
const matrix = new Matrix4(), tint = new Color();

/** Put one shape into the picture. color: number, or [r, g, b] with opacity as a fourth. */
function put(shape, layer, environment, position, quaternion, scale, color, owner, flat = false) {
  const rgb = Array.isArray(color);
  const opacity = (rgb ? color[3] : 1) * (choice.side || environment === choice.front ? 1 : GHOST);
  const key = `${shape}/${layer}/${opacity.toFixed(3)}/${flat}`;
  if (!swarms.has(key)) swarms.set(key, new Swarm(shape, layer, opacity, flat));
  if (rgb) tint.setRGB(color[0], color[1], color[2], "srgb"); else tint.set(color);
  swarms.get(key).add(matrix.compose(position, quaternion, scale), tint, owner);
}

/** Where an environment is moved to, side by side in rows. */
function offset(environment, out) {
  out.set(0, 0, 0);
  if (!choice.side) return out;
  const columns = Math.ceil(Math.sqrt(environments)), rows = Math.ceil(environments / columns);
  const x = (environment % columns) - (columns - 1) / 2, y = Math.floor(environment / columns) - (rows - 1) / 2;
  return out.set(x, -y, 0).multiplyScalar(2.1 * motion.radius).applyQuaternion(upright);
}

const p = new Vector3(), q = new Quaternion(), shift = new Vector3(), scale = new Vector3();
const local = { p: new Vector3(), q: new Quaternion() };
const C = { p: new Vector3(), q: new Quaternion() };
const direction = new Vector3(), turn = new Quaternion(), spot = new Vector3();
const Z = new Vector3(0, 0, 1);

/** Pose of a body in the picture. */
function bodyPose(at, environment, body, position, quaternion) {
  poseAt(at, environment, body, position, quaternion);
  position.add(offset(environment, shift));
}

function readPose(array, environment, item, pose) {
  const i = place(array, environment, item), v = array.values;
  pose.p.set(v[i], v[i + 1], v[i + 2]);
  pose.q.set(v[i + 4], v[i + 5], v[i + 6], v[i + 3]);
}

/** Pose of frame C of a joint in the picture. */
function jointPose(at, environment, index) {
  bodyPose(at, environment, motion.joints[index].child, p, q);
  readPose(channels.jointFrames, environment, index, local);
  C.p.copy(local.p).applyQuaternion(q).add(p);
  C.q.copy(q).multiply(local.q);
}

/** Linear and angular part of the unit twist of a joint's coordinate, in C. */
function unitTwist(at, environment, joint, i) {
  const k = place(joint.axes, at.frame, environment, i), v = joint.axes.values;
  return { linear: new Vector3(v[k], v[k + 1], v[k + 2]), angular: new Vector3(v[k + 3], v[k + 4], v[k + 5]) };
}

/** A cylinder or a cone between two points. */
function stick(shape, layer, environment, from, along, length, width, color, owner, flat) {
  turn.setFromUnitVectors(Z, along);
  spot.copy(from).addScaledVector(along, length / 2);
  put(shape, layer, environment, spot, turn, scale.set(width, width, length), color, owner, flat);
}

function arrow(layer, environment, from, vector, length, color, owner, heads = 1) {
  if (length < 0.02 * size) return;
  const along = vector.clone().normalize(), width = 0.035 * size * Math.max(0.6, Math.min(1, length / size + 0.4));
  const head = Math.min(4.5 * width, 0.45 * length / heads);
  stick("cylinder", layer, environment, from, along, length - 0.9 * head, width, color, owner, true);
  for (let i = 0; i < heads; i++) {
    const tip = from.clone().addScaledVector(along, length - (i + 1) * head);
    stick("cone", layer, environment, tip, along, head, 2.6 * width, color, owner, true);
  }
}

function drawParts(at, environment) {
  let last = null;
  motion.parts.forEach((part, i) => {
    if (!shown[part.layer]) return;
    if (part.body !== last) bodyPose(at, environment, part.body, p, q);
    last = part.body;
    readPose(channels.partFrames, environment, i, local);
    local.p.applyQuaternion(q).add(p);
    local.q.premultiply(q);
    const k = place(channels.partSizes, environment, i), s = channels.partSizes.values;
    scale.set(s[k], s[k + 1], s[k + 2]);
    if (part.kind === "plane") scale.setScalar(8 * motion.radius);
    const shape = part.kind === "mesh" ? `mesh${part.mesh}` : part.kind;
    put(shape, part.layer, environment, local.p, local.q, scale, part.color, part.body < 0 ? "world" : motion.bodies[part.body]);
  });
}

function drawFrames(at, environment) {
  const width = 0.018 * size, axis = new Vector3();
  for (let body = 0; body < motion.bodies.length; body++) {
    bodyPose(at, environment, body, p, q);
    if (shown.frames) {
      for (let i = 0; i < 3; i++) {
        axis.set(+(i === 0), +(i === 1), +(i === 2)).applyQuaternion(q);
        stick("cylinder", "frames", environment, p, axis, 0.4 * size, width, RED_GREEN_BLUE[i], motion.bodies[body], true);
      }
    }
    if (shown.com) {
      const k = place(channels.com, environment, body), v = channels.com.values;
      local.p.set(v[k], v[k + 1], v[k + 2]).applyQuaternion(q).add(p);
      put("sphere", "com", environment, local.p, q, scale.setScalar(0.1 * size), COLORS.com, `centre of mass of ${motion.bodies[body]}`);
    }
  }
}

/** The joint's body, by its motions: cylinders for angles, boxes for ways, a ball for three angles. */
function drawJoint(at, environment, joint, index) {
  const owner = `${joint.name} (${joint.type})`, turns = [], ways = [];
  for (let i = 0; i < joint.dof; i++) {
    const { linear, angular } = unitTwist(at, environment, joint, i);
    if (angular.length() > 1e-6) turns.push({ i, axis: angular.normalize().applyQuaternion(C.q) });
    else if (linear.length() > 1e-6) ways.push({ i, axis: linear.normalize().applyQuaternion(C.q) });
  }
  if (shown.joints) {
    if (joint.dof === 0) put("box", "joints", environment, C.p, C.q, scale.setScalar(0.15 * size), COLORS.joint, owner);
    if (turns.length > 2) put("sphere", "joints", environment, C.p, C.q, scale.setScalar(0.24 * size), COLORS.joint, owner);
    for (const { axis } of turns.length > 2 ? [] : turns) {
      spot.copy(C.p).addScaledVector(axis, -0.14 * size);
      stick("cylinder", "joints", environment, spot.clone(), axis, 0.28 * size, 0.17 * size, COLORS.joint, owner);
    }
    for (const { axis } of ways.length > 2 ? [] : ways) {
      turn.setFromUnitVectors(Z, axis);
      put("box", "joints", environment, C.p, turn, scale.set(0.17 * size, 0.17 * size, 0.36 * size), COLORS.joint, owner);
    }
  }
  if (shown.axes) {
    for (const { axis } of [...turns, ...ways]) {
      spot.copy(C.p).addScaledVector(axis, -0.45 * size);
      stick("cylinder", "axes", environment, spot.clone(), axis, 0.9 * size, 0.014 * size, COLORS.axis, owner, true);
    }
  }
  if (shown.limits) {
    for (const { i, axis } of turns) drawArc(at, environment, joint, i, axis, owner);
    for (const { i, axis } of ways) drawSpan(at, environment, joint, i, axis, owner);
  }
}

/** The direction, normal to an axis, of a joint's needle: from the joint to the child's mass. */
function needleOf(environment, joint, axis) {
  poseAt(now, environment, joint.child, p, q);
  const k = place(channels.com, environment, joint.child), v = channels.com.values;
  const needle = new Vector3(v[k], v[k + 1], v[k + 2]).applyQuaternion(q).add(p).add(offset(environment, shift)).sub(C.p);
  needle.addScaledVector(axis, -needle.dot(axis));
  // Where the mass is on the axis, any direction that turns with C.
  if (needle.length() < 0.05 * size) {
    needle.set(1, 0, 0).applyQuaternion(C.q);
    if (Math.abs(needle.dot(axis)) > 0.9) needle.set(0, 1, 0).applyQuaternion(C.q);
    needle.addScaledVector(axis, -needle.dot(axis));
  }
  return needle.normalize();
}

/** The allowed sector of an angle about its axis, and a needle at the angle. */
function drawArc(at, environment, joint, i, axis, owner) {
  const index = joint.start + i, [lower, upper] = limitsOf(environment, index);
  if (!Number.isFinite(lower) && !Number.isFinite(upper)) return;
  const angle = coordinateAt(at, environment, index), active = limitActive(at, environment, index);
  const needle = needleOf(environment, joint, axis), radius = 0.62 * size;
  stick("cylinder", "limits", environment, C.p, needle, radius, 0.02 * size, active ? COLORS.active : COLORS.needle, owner, true);
  const ends = [lower, upper].filter(Number.isFinite);
  for (const bound of ends) {
    const side = needle.clone().applyAxisAngle(axis, bound - angle);
    stick("cylinder", "limits", environment, C.p, side, radius, 0.014 * size, COLORS.bound, owner, true);
  }
  if (ends.length < 2) return;
  const width = Math.min(upper - lower, 2 * Math.PI), shape = `sector${width.toFixed(4)}`;
  shapes[shape] ??= new RingGeometry(0.3, 1, Math.max(6, Math.ceil(width / 0.1)), 1, 0, width);
  // The sector begins along x, the lower bound.
  const x = needle.clone().applyAxisAngle(axis, lower - angle), y = axis.clone().cross(x);
  turn.setFromRotationMatrix(new Matrix4().makeBasis(x, y, axis));
  const color = new Color(active ? COLORS.active : COLORS.limit).getRGB({}, "srgb");
  put(shape, "limits", environment, C.p, turn, scale.setScalar(radius), [color.r, color.g, color.b, 0.38], owner, true);
}

/** The allowed way of a slide, with plates at its ends, seen from where C stands in it. */
function drawSpan(at, environment, joint, i, axis, owner) {
  const index = joint.start + i, [lower, upper] = limitsOf(environment, index);
  const way = coordinateAt(at, environment, index), active = limitActive(at, environment, index);
  const color = active ? COLORS.active : COLORS.limit;
  turn.setFromUnitVectors(Z, axis);
  for (const bound of [lower, upper]) {
    if (!Number.isFinite(bound)) continue;
    spot.copy(C.p).addScaledVector(axis, bound - way);
    put("cylinder", "limits", environment, spot, turn, scale.set(0.26 * size, 0.26 * size, 0.025 * size), color, owner);
  }
  if (Number.isFinite(upper - lower)) {
    spot.copy(C.p).addScaledVector(axis, lower - way);
    stick("cylinder", "limits", environment, spot.clone(), axis, upper - lower, 0.03 * size, color, owner, true);
  }
}

/** The size that nine of ten vectors stay below; an item has `count` numbers, a vector from `first` on. */
function usualSize(array, count, first) {
  if (!array) return 0;
  const sizes = [], items = array.values.length / count;
  for (let i = 0; i < items; i += Math.ceil(items / 20000)) {
    const k = count * i + first;
    sizes.push(Math.hypot(array.values[k], array.values[k + 1], array.values[k + 2]));
  }
  sizes.sort((a, b) => a - b);
  return sizes.length ? sizes[Math.floor(0.9 * (sizes.length - 1))] : 0;
}

const usual = {
  forces: usualSize(channels.wrenches, 6, 0),
  moments: usualSize(channels.wrenches, 6, 3),
  contacts: usualSize(channels.contactForces, 3, 0),
};

// Impacts are many times the usual force: no arrow is longer than three times its length.
const arrowShare = (vector, layer) => Math.min(3, vector.length() / usual[layer]);
const arrowLength = (vector, layer) => (usual[layer] > 0 ? arrowShare(vector, layer) * size * choice.arrows : 0);

function drawForces(at, environment, joint, index) {
  if (!channels.wrenches) return;
  const wrench = between(channels.wrenches, at, environment, index, 6, new Float64Array(6));
  const force = new Vector3(wrench[0], wrench[1], wrench[2]).applyQuaternion(C.q);
  const moment = new Vector3(wrench[3], wrench[4], wrench[5]).applyQuaternion(C.q);
  const said = `${joint.name}: ${force.length().toPrecision(3)} N, ${moment.length().toPrecision(3)} N m`;
  if (shown.forces) arrow("forces", environment, C.p, force, arrowLength(force, "forces"), COLORS.force, said);
  if (shown.moments) arrow("moments", environment, C.p, moment, arrowLength(moment, "moments"), COLORS.moment, said, 2);
}

function drawContact(at, environment, name, index) {
  const here = new Float64Array(3);
  const point = new Vector3(...between(channels.contactPoints, at, environment, index, 3, here));
  const force = new Vector3(...between(channels.contactForces, at, environment, index, 3, here));
  point.add(offset(environment, shift));
  const said = `${name}: ${force.length().toPrecision(3)} N`;
  arrow("contacts", environment, point, force, arrowLength(force, "contacts"), COLORS.contact, said);
}

// Paths of points of bodies, each as a faint line of all frames and a clear one of those until now.
const paths = [];

function addTrace(body, point, environment, color) {
  const flat = [], v = channels.poses.values;
  for (let frame = 0; frame < frames; frame++) {
    const k = place(channels.poses, frame, environment, body);
    local.p.set(...point).applyQuaternion(local.q.set(v[k + 4], v[k + 5], v[k + 6], v[k + 3]));
    flat.push(local.p.x + v[k], local.p.y + v[k + 1], local.p.z + v[k + 2]);
  }
  if (frames < 2) return;
  const lines = [0.25, 1].map((opacity) => {
    const material = new LineMaterial({ color, linewidth: opacity < 1 ? 1.2 : 2.4, transparent: true, opacity, depthWrite: false });
    const line = new Line2(new LineGeometry().setPositions(flat), material);
    line.frustumCulled = false;
    picture.add(line);
    return line;
  });
  paths.push({ body, environment, lines });
}

function removeTraces(body) {
  for (let i = paths.length - 1; i >= 0; i--) {
    if (paths[i].body !== body) continue;
    for (const line of paths[i].lines) {
      picture.remove(line);
      line.geometry.dispose();
      line.material.dispose();
    }
    paths.splice(i, 1);
  }
}

function drawTraces(at) {
  for (const { environment, lines } of paths) {
    const bright = choice.side || environment === choice.front;
    lines.forEach((line, i) => {
      line.visible = shown.traces;
      line.position.copy(offset(environment, shift));
      line.material.opacity = [0.25, 1][i] * (bright ? 1 : 2 * GHOST);
    });
    lines[1].geometry.instanceCount = at.frame + Math.round(at.share);
  }
}

// Ground: a shadow catcher and a grid of round spacing.
const ground = new Group();
const spacing = (() => {
  const wanted = motion.radius / 3, power = 10 ** Math.floor(Math.log10(wanted));
  return [5, 2, 1].find((n) => n * power <= wanted) * power;
})();
{
  const cells = 60 * Math.ceil(Math.sqrt(environments));
  const catcher = new Mesh(new PlaneGeometry(cells * spacing, cells * spacing), new ShadowMaterial({ opacity: 0.16 }));
  catcher.receiveShadow = true;
  const floor = new Mesh(new PlaneGeometry(cells * spacing, cells * spacing), new MeshBasicMaterial({ color: 0xf6f7f9 }));
  // Lines of one colour: the ground moves by whole cells.
  const grid = new GridHelper(cells * spacing, cells, 0xc9d1da, 0xc9d1da).rotateX(Math.PI / 2);
  // One above the other by hairs: what lies in one plane flickers.
  grid.position.z = -1e-3 * motion.radius;
  floor.position.z = -2e-3 * motion.radius;
  floor.renderOrder = -1;
  ground.add(catcher, grid, floor);
  ground.quaternion.copy(upright);
  picture.add(ground);
}

/** The ground about a point; lines of its grid pass through the origin wherever it lies. */
function placeGround(about) {
  const inGround = about.clone().applyQuaternion(upright.clone().invert());
  inGround.set(Math.round(inGround.x / spacing) * spacing, Math.round(inGround.y / spacing) * spacing, motion.ground);
  ground.position.copy(inGround.applyQuaternion(upright));
}

const sky = new HemisphereLight(0xffffff, 0xc3cad4, 2.0);
sky.position.copy(up);
const sun = new DirectionalLight(0xfff6ea, 2.1);
sun.castShadow = true;
sun.shadow.mapSize.set(2048, 2048);
sun.shadow.radius = 4;
sun.shadow.normalBias = 0.01 * motion.radius;
picture.add(sky, sun, sun.target);

/** Half the width of all that is shown [m]. */
function reach() {
  return motion.radius * (choice.side ? 1.05 * Math.ceil(Math.sqrt(environments)) : 1);
}

/** The light about a point, where alone it casts shadows. */
function placeSun(about) {
  const r = 1.3 * reach();
  sun.target.position.copy(about);
  sun.position.set(0.45, -0.6, 1.3).normalize().multiplyScalar(4 * r).applyQuaternion(upright).add(about);
  Object.assign(sun.shadow.camera, { left: -r, right: r, top: r, bottom: -r, near: r, far: 8 * r });
  sun.shadow.camera.updateProjectionMatrix();
}

const VIEWS = { iso: [0.55, -1, 0.42], front: [0, -1, 0.02], side: [1, 0, 0.02], top: [0, -0.001, 1] };

/** From which distance everything stays in the free part of the window, seen from a direction. */
function fit(toward) {
  const right = up.clone().cross(toward).normalize(), above = toward.clone().cross(right);
  const tall = Math.tan((camera.fov * Math.PI) / 360) * 0.9;
  const limits = [(tall * free.width) / innerHeight, (tall * free.height) / innerHeight];
  const grown = reach() / motion.radius, corner = new Vector3();
  let distance = 0.1 * motion.radius;
  for (let i = 0; i < 8; i++) {
    [0, 1, 2].forEach((axis) => corner.setComponent(axis, motion.box[(i >> axis) & 1][axis]));
    corner.sub(centre).multiplyScalar(grown);
    // |across| must be below the limit times the depth of the corner, distance - along.
    const along = corner.dot(toward);
    [right, above].forEach((axis, k) => {
      distance = Math.max(distance, along + Math.abs(corner.dot(axis)) / limits[k]);
    });
  }
  return distance;
}

/** Look from a side: at the start, from where a body is followed if the motion goes far. */
function look(view) {
  const toward = new Vector3(...VIEWS[view]).normalize().applyQuaternion(upright), distance = fit(toward);
  orbit.target.copy(centre);
  camera.position.copy(centre).addScaledVector(toward, distance);
  camera.near = 0.002 * distance;
  camera.far = 60 * distance;
  following = -1;
  if (motion.follow >= 0 && choice.follow === motion.follow) {
    following = motion.follow;
    bodyPose(frameAt(start), choice.front, following, before, q);
  }
  orbit.update();
}

// The part of the window that the panel and the player leave free.
const free = { width: innerWidth, height: innerHeight };

function resize() {
  const classes = document.body.classList, bare = classes.contains("bare");
  const panel = bare || classes.contains("closed") ? 0 : 268, player = bare ? 0 : 64;
  const plot = document.getElementById("plot"), height = bare || plot.hidden ? 0 : plot.clientHeight + 12;
  const toward = camera.position.clone().sub(orbit.target).normalize(), before = fit(toward);
  Object.assign(free, {
    width: Math.max(80, innerWidth - panel), height: Math.max(80, innerHeight - player - height),
  });
  // What was seen whole stays so.
  camera.position.sub(orbit.target).multiplyScalar(fit(toward) / before).add(orbit.target);
  renderer.setSize(innerWidth, innerHeight, false);
  camera.aspect = innerWidth / innerHeight;
  camera.setViewOffset(innerWidth, innerHeight, panel / 2, (player + height) / 2, innerWidth, innerHeight);
  const ratio = renderer.getPixelRatio();
  labels.width = innerWidth * ratio;
  labels.height = innerHeight * ratio;
}

let following = -1;
const labels = document.getElementById("labels");

function drawNames(at) {
  const context = labels.getContext("2d"), ratio = renderer.getPixelRatio();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, innerWidth, innerHeight);
  if (!shown.names) return;
  context.font = "12px system-ui, 'Liberation Sans', sans-serif";
  context.textAlign = "center";
  context.lineWidth = 3;
  context.strokeStyle = "rgba(255, 255, 255, 0.85)";
  context.fillStyle = "#27303b";
  motion.bodies.forEach((name, body) => {
    bodyPose(at, choice.front, body, p, q);
    const k = place(channels.com, choice.front, body), v = channels.com.values;
    local.p.set(v[k], v[k + 1], v[k + 2]).applyQuaternion(q).add(p).project(camera);
    if (Math.abs(local.p.z) > 1) return;
    const text = name.length > 28 ? `${name.slice(0, 27)}…` : name;
    const x = ((local.p.x + 1) / 2) * innerWidth, y = ((1 - local.p.y) / 2) * innerHeight - 8;
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
  });
}

let now = frameAt(choice.time);
const followed = new Vector3(), before = new Vector3();

/** Move camera and target with the body that is followed. */
function follow(at) {
  if (choice.follow >= 0) {
    bodyPose(at, choice.front, choice.follow, followed, q);
    if (following !== choice.follow) before.copy(orbit.target);
    camera.position.add(followed).sub(before);
    orbit.target.add(followed).sub(before);
    before.copy(followed);
  }
  following = choice.follow;
}

/** The whole picture at the chosen time. */
function draw() {
  const at = (now = frameAt(choice.time));
  for (const swarm of swarms.values()) swarm.mesh.count = 0;
  for (let environment = 0; environment < environments; environment++) {
    drawParts(at, environment);
    if (shown.frames || shown.com) drawFrames(at, environment);
    motion.joints.forEach((joint, index) => {
      if (!(shown.joints || shown.axes || shown.limits || shown.forces || shown.moments)) return;
      jointPose(at, environment, index);
      if (joint.dof < 6) drawJoint(at, environment, joint, index);
      drawForces(at, environment, joint, index);
    });
    if (shown.contacts) motion.contacts.forEach((name, index) => drawContact(at, environment, name, index));
  }
  for (const swarm of swarms.values()) swarm.finish();
  drawTraces(at);
  ground.visible = shown.ground;
  follow(at);
  orbit.update();
  const about = choice.follow >= 0 ? orbit.target : centre;
  placeGround(about);
  placeSun(about);
  const distance = camera.position.distanceTo(orbit.target);
  picture.fog.near = distance + 1.5 * reach();
  picture.fog.far = distance + 7 * reach();
  camera.updateMatrixWorld();
  renderer.render(picture, camera);
  drawNames(at);
}

const ray = new Raycaster(), pointer = new Vector2();

/** What is said of the shape under the pointer, or null. */
function under(x, y) {
  pointer.set((2 * x) / innerWidth - 1, 1 - (2 * y) / innerHeight);
  ray.setFromCamera(pointer, camera);
  const meshes = [...swarms.values()].filter((swarm) => swarm.mesh.count).map((swarm) => swarm.mesh);
  const hit = ray.intersectObjects(meshes, false).find((one) => one.object.owners[one.instanceId]);
  return hit ? hit.object.owners[hit.instanceId] : null;
}

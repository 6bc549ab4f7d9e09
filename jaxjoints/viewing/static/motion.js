// The motion that the page carries: arrays over frames and environments, and poses between frames.
"use strict";

const motion = JSON.parse(document.getElementById("motion").textContent);

/** An array from its base64 text; an axis of length 1 stands for any index. */
function decoded({ shape, type, data }) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const values = new (type === "u4" ? Uint32Array : Float32Array)(bytes.buffer);
  const strides = shape.map((n, i) => (n === 1 ? 0 : shape.slice(i + 1).reduce((a, b) => a * b, 1)));
  return { shape, values, strides };
}

/** Where the item with these leading indices begins in the values of an array. */
function place(array, ...indices) {
  return indices.reduce((sum, index, i) => sum + index * array.strides[i], 0);
}

const channels = {};
for (const [name, channel] of Object.entries(motion.channels)) channels[name] = decoded(channel);
for (const joint of motion.joints) joint.axes = decoded(joint.axes);

const frames = channels.time.values.length;
const environments = motion.environments.length;
const start = channels.time.values[0];
const end = channels.time.values[frames - 1];

/** The frame before a time, and the share of the way from it to the next one. */
function frameAt(time) {
  const times = channels.time.values;
  let low = 0, high = frames - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle; else high = middle;
  }
  if (frames === 1) return { frame: 0, next: 0, share: 0 };
  const share = Math.min(1, Math.max(0, (time - times[low]) / (times[high] - times[low])));
  return { frame: low, next: high, share };
}

/** `count` numbers of an array over (frames, environments, items) between two frames. */
function between(array, at, environment, item, count, out) {
  const a = place(array, at.frame, environment, item), b = place(array, at.next, environment, item);
  for (let i = 0; i < count; i++) {
    out[i] = array.values[a + i] * (1 - at.share) + array.values[b + i] * at.share;
  }
  return out;
}

const poseNumbers = new Float64Array(7);

/** Pose of a body frame, or of the world for a body of -1, between two frames. */
function poseAt(at, environment, body, position, quaternion) {
  if (body < 0) {
    position.set(0, 0, 0);
    quaternion.set(0, 0, 0, 1);
    return;
  }
  const values = channels.poses.values, n = poseNumbers;
  const a = place(channels.poses, at.frame, environment, body);
  const b = place(channels.poses, at.next, environment, body);
  let dot = 0;
  for (let i = 3; i < 7; i++) dot += values[a + i] * values[b + i];
  // A quaternion and its negative are one rotation: the nearer of the two.
  const sign = dot < 0 ? -1 : 1;
  for (let i = 0; i < 7; i++) {
    n[i] = values[a + i] * (1 - at.share) + (i < 3 ? 1 : sign) * values[b + i] * at.share;
  }
  position.set(n[0], n[1], n[2]);
  quaternion.set(n[4], n[5], n[6], n[3]).normalize();
}

/** A coordinate between two frames. */
function coordinateAt(at, environment, index) {
  return between(channels.coordinates, at, environment, index, 1, poseNumbers)[0];
}

/** Lower and upper bound of a coordinate; infinite where there is none. */
function limitsOf(environment, index) {
  const i = place(channels.limits, environment, index);
  return [channels.limits.values[i], channels.limits.values[i + 1]];
}

let largestLimitForce = 0;
if (channels.limitForces) {
  for (const x of channels.limitForces.values) largestLimitForce = Math.max(largestLimitForce, Math.abs(x));
}

/** Whether a limit acts: the coordinate is at a bound, and the limit pushes, where that is recorded. */
function limitActive(at, environment, index) {
  const q = coordinateAt(at, environment, index), [lower, upper] = limitsOf(environment, index);
  const near = 1e-2 * (Number.isFinite(upper - lower) ? upper - lower : 1);
  if (q > lower + near && q < upper - near) return false;
  if (!channels.limitForces) return true;
  const force = channels.limitForces.values[place(channels.limitForces, at.frame, environment, index)];
  return Math.abs(force) > 1e-3 * largestLimitForce;
}

"""The engines under comparison, by the names that tables give them; each runs in its own process.

Values: module in this folder and class in it, imported where it runs, since each needs a library.
"""

ENGINES = {
    "jaxjoints": ("of_jaxjoints", "JaxJoints"),
    "mujoco one core": ("of_mujoco", "MuJoCo"),
    "mujoco all cores": ("of_mujoco", "MuJoCoAll"),
    "mjx": ("of_mjx", "Mjx"),
    "mjx fast": ("of_mjx", "MjxFast"),
    "brax generalized": ("of_brax", "Generalized"),
    "brax positional": ("of_brax", "Positional"),
    "brax spring": ("of_brax", "Spring"),
    "jaxsim": ("of_jaxsim", "JaxSim"),
    "pinocchio": ("of_pinocchio", "Pinocchio"),
}
# Engines that integrate in another way, so that their end states are not compared.
OTHERWISE = {"brax positional", "brax spring"}
# Those that compute on the device, and need a flag without which they take seconds a step on a CPU.
ON_DEVICE = {name for name in ENGINES if name.partition(" ")[0] not in ("mujoco", "pinocchio")}
FLAGGED = {name for name in ON_DEVICE if not name.startswith("jaxjoints")}

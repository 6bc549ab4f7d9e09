"""The engines under comparison, by the names that tables give them; each runs in its own process.

Values: module in this folder and class in it, imported where it runs, since each needs a library.
"""

ENGINES = {
    "jaxjoints": ("of_jaxjoints", "JaxJoints"),
    "mujoco one core": ("of_mujoco", "MuJoCo"),
    "mujoco all cores": ("of_mujoco", "MuJoCoAll"),
    "mjx": ("of_mjx", "Mjx"),
    "mjx fast": ("of_mjx", "MjxFast"),
}
# Engines that integrate in another way, so that their end states are not compared.
OTHERWISE = set()
# Those that compute on the device, and need a flag without which they take seconds a step on a CPU.
ON_DEVICE = {"jaxjoints", "mjx", "mjx fast"}
FLAGGED = ON_DEVICE - {"jaxjoints"}

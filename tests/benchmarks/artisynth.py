"""ArtiSynth's recorded scenes one step ahead: largest differences from each record to the next.

python tests/benchmarks/artisynth.py
python tests/benchmarks/artisynth.py --only gear,tilt
"""

import argparse
import sys
import warnings
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import artisynth_scenes as scenes


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="parts of the names of scenes")
    parts = options.parse_args().only.split(",")
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of scenes that start beyond their limits
    print("| scene | pose | twist | multipliers | engaged, otherwise than recorded |")
    print("|---|---|---|---|---|")
    for name, scene in scenes.SCENES.items():
        if not any(part in name for part in parts):
            continue
        ends = scenes.after((name,), scene["dt"], tuple(scene["gravity"]))
        found = ends.differences(scene)
        engaged, other = found.engaged
        print(
            f"| {name} | {found.pose:.0e} | {found.twist:.0e} | {found.multiplier:.0e} "
            f"| {engaged}, {other} |",
            flush=True,
        )
        jax.clear_caches()


if __name__ == "__main__":
    main()

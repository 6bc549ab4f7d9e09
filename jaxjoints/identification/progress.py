"""A progress bar for searches."""

import numpy as np
from tqdm import tqdm


class Progress:
    """A progress bar with the best mean square so far, for the `report` of `fit` or `identify`.

    It is drawn on the error stream of a terminal alone, so that files and notebooks stay as they
    are.

    title: what stands in front of the bar

    >>> progress = Progress("knee")
    >>> progress(1, 20, np.array([3.0, 2.0]))
    >>> progress.best
    2.0
    """

    def __init__(self, title: str = "search"):
        self.title, self.best, self.bar = title, np.inf, None

    def __call__(self, done: int, total: int, losses: np.ndarray) -> None:
        """Draw the bar after an evaluation; arguments are those of `report`."""
        if done == 1:
            self.best = np.inf
            self.bar = tqdm(total=total, desc=self.title, unit="evaluation", disable=None)
        self.best = float(np.nanmin([*losses, self.best]))
        self.bar.set_postfix_str(f"mean square {self.best:.3g}", refresh=False)
        self.bar.update()
        if done == total:
            self.bar.close()

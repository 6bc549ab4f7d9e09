"""Motions to look at: names that would do harm as markup, and rollouts with forces."""

import jaxjoints as jj

# Of bodies and joints.
HOSTILE = (
    '</script><script>window.ran = "markup"</script>',
    "<img src=x onerror=\"window.ran = 'image'\">",
    "<!--<script>",
    "'\"`${window.ran = 1}\\u0000",
    "\u2028\u202e\x00\x1b[31m\ud800",
    "n" * 10_000,
    "&lt;b&gt;",
)


def both(state, info):
    return state, info


def moving(system, state, **options):
    """Eight frames of a motion with forces."""
    options = {"dt": 1e-2, "steps": 16, "record_every": 2, "record": both} | options
    return jj.rollout(system, state, **options)[1]

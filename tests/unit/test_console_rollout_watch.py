"""A watch on the rollout screen: that it has failed is seen with the look that fails it, and that nobody watches once it is left."""

from __future__ import annotations

from typing import Any

import pytest

from iris_core.live.wording import Tone
from iris_tui.rollouts import leaving
from screens import rollout_words
from tests.unit.rollout_world import RolloutWorld
from tests.unit.test_console_rollout import Wizard, wizard, world

__all__ = ["world"]

pytestmark = pytest.mark.asyncio


def crash_at(world: RolloutWorld, look: int) -> None:
    """The controller of h1 is started again before that look of its watch, after which the clock of the watch stands still."""
    h1, looks = world["h1"], 0
    plain = h1.sample

    def sample() -> dict[str, Any]:
        nonlocal looks
        looks += h1.shipped
        if h1.shipped and looks == look:
            h1.host.boot += 1
            world.clock.going.clear()
        return plain()

    h1.sample = sample  # type: ignore[method-assign]


async def to_the_watch(it: Wizard) -> None:
    await it.begin()
    await it.approve("tree")
    await it.approve("h1/restart")


async def test_a_watch_says_that_it_has_failed_with_the_look_that_fails_it_and_after_it_was_left(
    world: RolloutWorld,
) -> None:
    crash_at(world, 2)
    async with wizard(world) as it:
        await to_the_watch(it)
        failed = "the watch of h1 has failed (started again): 15 of 300 s, "
        await it.rig.until(
            lambda: (
                f"{failed}285 s are left, and nothing shortens them" in it.screen.facts.text
                and "15 s: started again, 2/2 workers healthy" in it.screen.text.text
            )
        )
        assert "h1 in its watch, which has failed" in it.screen.facts.text
        tones = {text.strip()[:6]: tone for text, tone in rollout_words.lines(it.journal)}
        assert (tones["0 s: 2"], tones["15 s: "]) == (Tone.PLAIN, Tone.BAD)
        said = "\n".join(leaving(it.screen.shown, it.journal, ""))
        assert "nobody watches it. The watch begins anew" in said
        await it.rig.keys("L")
        await it.rig.until(lambda: "was left, and waits to be gone on with" in it.text)
        left = "nobody watches it now, and it begins anew when the rollout is gone on with"
        await it.rig.until(lambda: failed + left in it.screen.facts.text and "shortens" not in it.screen.facts.text)
        world.clock.going.set()
        it.rig.app.run_command("rollout-resume")
        await it.rig.until(lambda: it.asked == "h1/failed")
        assert "The watch of h1 failed: roll back?" in it.text
        assert "the controller was started again during the watch" in it.text
    assert world["h2"].untouched


async def test_a_watch_that_is_well_says_that_nobody_watches_once_it_is_left(world: RolloutWorld) -> None:
    async with wizard(world) as it:
        world.clock.going.clear()
        await to_the_watch(it)
        await it.rig.until(lambda: "0 of 300 s, 300 s are left, and nothing shortens them" in it.screen.facts.text)
        await it.rig.keys("L")
        await it.rig.until(
            lambda: "the watch of h1: 0 of 300 s, nobody watches it now, and it begins anew" in it.screen.facts.text
        )
        assert "has failed" not in it.text

"""Has a model tell several results as one answer, and takes its text only if it adds nothing."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from remit.policy.aggregate import Blend, Combined, blended, components_of

log = logging.getLogger("remit")

Blender = Callable[[Blend], Awaitable[str]]
"""Has a model tell several results as one: it gets `blend.prompt`, and gives the model's text back."""


async def told_as_one(combined: Combined, blender: Blender, request: str, titles: Sequence[str]) -> Combined:
    """Return what was combined with the model's text as its result; as it is, if the model fails or makes things up."""
    merged = combined.answer
    assert merged is not None, "without results there is nothing to tell"
    components = components_of(combined.responses, titles)
    blend = Blend(request=request, components=tuple(components), conflicts=combined.conflicts)
    try:
        text = await blender(blend)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - blenders come from users
            raise TypeError(f"a blender gave a {type(text).__name__}, not a text")
    except Exception as error:  # noqa: BLE001 - what was found is not lost because a model could not be reached
        log.warning("results could not be told as one: %s", type(error).__name__)
        failed = f"the results could not be told as one: {type(error).__name__}"
        return replace(combined, answer=replace(merged, warnings=(*merged.warnings, failed)))
    # Every name and figure of the text is looked for in all that the model was given.
    import asyncio  # a team is read, briefs and all, where there is no event loop

    return replace(combined, answer=await asyncio.to_thread(blended, merged, text, blend))

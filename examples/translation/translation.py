"""The main function of the example: ask the orchestrator, then let its translations be corrected and joined."""

from remit import Brief


async def translate(brief: Brief) -> object:
    """Translate a text into the languages that the user asks for."""
    translations = (await brief.delegate("orchestrator", objective=brief.text)).unwrap()
    joined = await brief.delegate("synthesizer", objective="Join the translations", input=translations)
    return joined.unwrap()

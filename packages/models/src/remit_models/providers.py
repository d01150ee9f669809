"""Finds models by name at their providers, and translates the providers' errors."""

import re
from collections.abc import Iterable
from typing import Any, cast

from pydantic_ai.exceptions import (
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import infer_provider_class
from pydantic_ai.settings import ModelSettings

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.runtime.registry import team_invalid
from remit_models.reserve import LimitReached

# A provider's error message is for people; the rest of it may be the prompt that it complains about.
_MAX_WORDS = 200

_OPENAI = ("openai:", "openai-chat:")
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9_]{3,})`")
_INSTALL = re.compile(r"pip install [\"']?([\w\[\],-]+)[\"']?")


_LESS_TO_READ = "Give it less to read, or use a model that reads more at once."


def model_of(model: str | Model, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """Return a model by its name, or raise a `RemitError` that says what is missing and how to get it."""
    if not isinstance(model, str):
        if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise team_invalid(f"a `{type(model).__qualname__}` is no model: give its name, or a model of pydantic-ai")
        return model
    try:
        if base_url is not None:
            return _served_at(base_url, model, api_key)
        if api_key is not None:
            return infer_model(model, provider_factory=lambda name: _provider(name, api_key))
        return infer_model(model)
    except ImportError as error:
        command = _INSTALL.search(str(error))
        install = f"Install what it takes: pip install '{command[1] if command else 'pydantic-ai-slim'}'"
        why = f"the package for `{model.partition(':')[0]}` is not installed"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=install)) from error
    except Exception as error:  # each provider's client has its own errors: OpenAI's for an empty key
        raise RemitError(_unusable(model, str(error))) from error


def check_settings(settings: Iterable[str]) -> None:
    """Raise a `RemitError` for a misspelt setting: providers ignore settings that they do not know."""
    known = ModelSettings.__annotations__
    for name in settings:
        if name not in known and (near := did_you_mean(name, known)):
            raise team_invalid(f"models have no setting `{name}`{near}")


def _served_at(base_url: str, name: str, api_key: str | None) -> Model:
    """Return a model of an OpenAI-compatible server; its names may contain colons."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    # Other servers behind such an address know the output limit only by its older name.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=name.startswith(_OPENAI))
    for prefix in _OPENAI:
        name = name.removeprefix(prefix)
    provider = OpenAICompatibleProvider("openai-compatible", base_url=base_url, api_key=api_key, profile=profile)
    return OpenAIChatModel(name, provider=provider)


def _provider(name: str, api_key: str) -> Any:
    return cast("Any", infer_provider_class(name))(api_key=api_key)


def _unusable(model: str, why: str) -> Fault:
    if (variable := _VARIABLE.search(why)) is not None:
        message = f"the model `{model}` needs a key"
        return fault(Code.TEAM_INVALID, message, suggestion=f"Put it into the environment variable {variable[1]}.")
    known = why.replace("Unknown model", "there is no model")[:_MAX_WORDS]
    suggestion = "Write the provider before the name, as in `openai:gpt-5-mini`; or give the server's `base_url`."
    return fault(Code.TEAM_INVALID, f"the model `{model}` cannot be used: {known}", suggestion=suggestion)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def translated(error: BaseException, model: str) -> RemitError | None:
    """Translate an error of a model, its provider or the network; None if it is another error."""
    if isinstance(error, BaseExceptionGroup):  # several models were tried: the error of the last one counts
        return translated(cast("BaseExceptionGroup[BaseException]", error).exceptions[-1], model)
    match error:
        case RemitError():
            return error
        case ModelAPIError():
            return RemitError(_refused(error, model))
        case IncompleteToolCall():
            return LimitReached(cut_short(model))
        case ContentFilterError():
            return RemitError(fault(Code.DELEGATION_FAILED, f"the content filter of {model} let no answer through"))
        case UnexpectedModelBehavior() if "token limit" in error.message:
            return LimitReached(cut_short(model))
        case UnexpectedModelBehavior():
            why = f"{model} did not give an answer that can be used: {error.message[:_MAX_WORDS]}"
            return RemitError(fault(Code.RESULT_VALIDATION_FAILED, why))
        case UserError() if _VARIABLE.search(error.message):
            return RemitError(_unusable(model, error.message))
        case UserError():
            return team_invalid(f"{model} cannot be asked for this: {error.message[:_MAX_WORDS]}")
        case _:
            return None


def without_key(error: UserError, model: object) -> RemitError | None:
    """Return the fault for a missing API key; None if it is another error."""
    if _VARIABLE.search(error.message) is None:
        return None
    return RemitError(_unusable(model if isinstance(model, str) else type(model).__name__, error.message))


def cut_short(model: str) -> Fault:
    """Return the fault for an answer that did not fit in the tokens it was allowed."""
    why = f"the tokens that {model} could have for its answer ran out before there was one"
    suggestion = "Simplify the task, or let it have more: a larger budget, or `max_output_tokens`."
    return fault(Code.TOKEN_BUDGET_EXCEEDED, why, suggestion=suggestion)


def _refused(error: ModelAPIError, model: str) -> Fault:
    wait_ms = None if error.retry_after is None else max(0, round(error.retry_after * 1_000))
    status = f" (HTTP {error.status_code})" if isinstance(error, ModelHTTPError) else ""
    match error:
        case ModelAuthenticationError():
            why = f"the provider of {model} does not accept the key that it was given{status}"
            suggestion = "Check the key in the environment variable that the team file, or the provider, names."
            return fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=suggestion)
        case ModelQuotaExceededError():
            return fault(Code.DELEGATION_UNAVAILABLE, f"the account for {model} is used up{status}")
        case ModelRateLimitError():
            why = f"the provider of {model} is asked too often{status}"
            return fault(Code.RATE_LIMITED, why, retry_after_ms=wait_ms)
        case ModelContextWindowExceededError():
            return fault(
                Code.TOO_LARGE, f"this is more than {model} can read at once{status}", suggestion=_LESS_TO_READ
            )
        case ModelRequestRejectedError() if "context size" in _error_text(
            error
        ):  # as llama.cpp reports it, without a code
            return fault(
                Code.TOO_LARGE, f"this is more than {model} can read at once{status}", suggestion=_LESS_TO_READ
            )
        case ModelNotFoundError():
            why = f"its provider knows no model {model}{status}"
            suggestion = "Check the model's name, and `base_url` if there is one: most end in /v1."
            return fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=suggestion)
        case ModelRequestRejectedError():
            return fault(
                Code.DELEGATION_FAILED, f"the provider of {model} rejected the request{status}{_error_text(error)}"
            )
        case _:
            why = f"the provider of {model} cannot be reached, or cannot answer{status}"
            suggestion = "Check that its server is up, and `base_url` if there is one; else try again later."
            return fault(Code.DELEGATION_UNAVAILABLE, why, suggestion=suggestion, retry_after_ms=wait_ms)


def _error_text(error: ModelAPIError) -> str:
    body = error.body
    message = cast("dict[str, object]", body).get("message") if isinstance(body, dict) else None
    return f": {message[:_MAX_WORDS]}" if isinstance(message, str) else ""

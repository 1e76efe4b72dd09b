"""What goes over the wire: requests as vLLM's OpenAI-compatible server takes them, and answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.live import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowed",
    408: "BadRequestError",
    413: "BadRequestError",
    429: "TooManyRequestsError",
    431: "BadRequestError",
    500: "InternalServerError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
_IGNORED_WITH_ONE_CHOICE = ("n", "best_of")


class RefusedError(Exception):
    """A request that is answered by an error; `reason`: why, if not because of the request."""

    def __init__(
        self, status: int, message: str, param: str | None = None, *, reason: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.body = error_body(status, message, param)


class CutError(Exception):
    """A request whose connection breaks."""


def error_body(status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """An error as vLLM states it."""
    kind = _TYPES.get(status, "ServiceUnavailableError")
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True)
class Ask:
    """A request for a completion."""

    is_chat: bool
    model: str
    prompt: list[int]
    max_tokens: int | None
    ignores_eos: bool
    streams: bool
    includes_usage: bool
    continuous_usage: bool
    transfer: Any = None  # its `kv_transfer_params`


def parsed(body: bytes) -> Any:
    """The JSON of a body."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the body is not JSON") from None


def document(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    found = parsed(body)
    if not isinstance(found, dict):
        raise RefusedError(400, "the body must be a JSON object")
    return found


def _taken(given: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = given.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RefusedError(400, f"{name} = {short(value)}: must be of type {kind.__name__}", name)
    return value


def short(value: Any) -> str:
    """A value as errors show it."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def prompt_of(given: Mapping[str, Any], most: int) -> list[int]:
    """The tokens of `messages` or `prompt`; RefusedError if they are more than `most`."""
    found = _prompt_of(given, most + 1)
    if len(found) > most:
        message = (
            f"This model's maximum context length is {most} tokens. However, your prompt has more."
        )
        raise RefusedError(400, message, "messages" if "messages" in given else "prompt")
    return found


def _prompt_of(given: Mapping[str, Any], most: int) -> list[int]:
    if "messages" in given:
        return tokens.encode(_chat_text(given["messages"]), most)
    prompt = given.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return tokens.encode(prompt, most)
    is_tokens = isinstance(prompt, list) and all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 2**53
        for token in prompt
    )
    if prompt and is_tokens:
        return list(prompt)
    allowed = "must be a text, a list of token numbers, or a list of one of these, and not empty"
    raise RefusedError(400, f"prompt = {short(prompt)}: {allowed}", "prompt")


def _chat_text(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise RefusedError(400, "messages must be a list of messages", "messages")
    text = []
    for i, message in enumerate(messages):
        content = message.get("content") if isinstance(message, dict) else None
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        words = [
            part["text"]
            for part in parts
            if isinstance(part, dict)
            and part.get("type") == "text"
            and isinstance(part.get("text"), str)
        ]
        if not isinstance(message, dict) or len(words) != len(parts):
            allowed = "must have a role and a content of text"
            raise RefusedError(400, f"messages[{i}]: {allowed}", "messages")
        text.append(f"{message.get('role', 'user')}: {''.join(words)}\n")
    return "".join(text) + "assistant:"


def ask_of(body: bytes, *, is_chat: bool, model: str, longest: int) -> Ask:
    """The request of a body, with at most that many tokens of a prompt; raises RefusedError."""
    given = document(body)
    if is_chat and "messages" not in given:
        raise RefusedError(400, "messages is missing", "messages")
    if not is_chat and "messages" in given:
        raise RefusedError(400, "messages belongs to /v1/chat/completions", "messages")
    asked = _taken(given, "model", str, model)
    if asked != model:
        raise RefusedError(404, f"The model `{short(asked)[1:-1]}` does not exist.", "model")
    for name in _IGNORED_WITH_ONE_CHOICE:
        if _taken(given, name, int, 1) != 1:
            raise RefusedError(400, f"{name} = {given[name]}: only one choice is simulated", name)
    limits = [
        _taken(given, name, int, None)
        for name in (("max_completion_tokens", "max_tokens") if is_chat else ("max_tokens",))
    ]
    most = next((limit for limit in limits if limit is not None), None)
    if most is not None and most < 1:
        raise RefusedError(400, f"max_tokens must be at least 1, got {most}.", "max_tokens")
    streams = _taken(given, "stream", bool, False)
    options = _taken(given, "stream_options", dict, {})
    if options and not streams:
        message = "Stream options can only be defined when `stream=True`."
        raise RefusedError(400, message, "stream_options")
    return Ask(
        is_chat=is_chat,
        model=model,
        prompt=prompt_of(given, longest),
        max_tokens=most if is_chat or most is not None else 16,
        ignores_eos=_taken(given, "ignore_eos", bool, False),
        streams=streams,
        includes_usage=bool(options.get("include_usage")),
        continuous_usage=bool(
            options.get("include_usage") and options.get("continuous_usage_stats")
        ),
        transfer=given.get("kv_transfer_params"),
    )


def usage_of(prompt: int, output: int) -> dict[str, int]:
    """The usage of a request."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
    }


def permission(created: int) -> dict[str, Any]:
    """The permission that vLLM states for a model."""
    return {
        "id": f"modelperm-{0:016x}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


def _nothing(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


# What vLLM 0.33 states and a simulated answer has not, each in its place.
_NO_DETAILS = _nothing("prompt_tokens_details", "completion_tokens_details")
_BEFORE_USAGE = _nothing("service_tier", "system_fingerprint")
_AFTER_TRANSFER = _nothing("kv_transfer_params", "ec_transfer_params", "metrics")
_AFTER_COMPLETION = _AFTER_TRANSFER
_AFTER_CHAT = _nothing("prompt_logprobs", "prompt_token_ids", "prompt_text") | _AFTER_TRANSFER
_OF_COMPLETION = _nothing(
    "token_ids", "prompt_logprobs", "prompt_token_ids", "routed_experts", "weight_versions"
)
_OF_CHAT = _nothing("token_ids", "routed_experts", "weight_versions")
_OF_MESSAGE = _nothing("refusal", "annotations", "audio", "function_call", "reasoning")


class Answer:
    """The answers to one request, with the fields of vLLM 0.33 in its order."""

    def __init__(self, ask: Ask, number: int, created: int) -> None:
        prefix = "chatcmpl" if ask.is_chat else "cmpl"
        self._ask = ask
        self._head: dict[str, Any] = {
            "id": f"{prefix}-{number:032x}",
            "object": "chat.completion.chunk" if ask.is_chat else "text_completion",
            "created": created,
            "model": ask.model,
        }
        name = "delta" if ask.is_chat else "text"
        self._begin = f'data: {_compact(self._head)[:-1]},"choices":[{{"index":0,"{name}":'

    @property
    def name(self) -> str:
        """The `id` of the answers."""
        return str(self._head["id"])

    def whole(self, output: int, finish_reason: str) -> dict[str, Any]:
        """The answer in one piece."""
        text = tokens.words(0, output)
        choice: dict[str, Any] = {"index": 0}
        head = dict(self._head)
        if self._ask.is_chat:
            head["object"] = "chat.completion"
            choice["message"] = {"role": "assistant", "content": text} | _OF_MESSAGE
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        choice |= _OF_CHAT if self._ask.is_chat else _OF_COMPLETION
        usage = usage_of(len(self._ask.prompt), output) | _NO_DETAILS
        rest = _AFTER_CHAT if self._ask.is_chat else _AFTER_COMPLETION
        return {**head, "choices": [choice], **_BEFORE_USAGE, "usage": usage, **rest}

    def chunks(self, start: int, stop: int, finish_reason: str | None) -> bytes:
        """The events of the tokens from `start` to `stop`, exclusive: all in one chunk."""
        role = ""
        if self._ask.is_chat and start == 0:
            role = self._chunk('{"role":"assistant","content":""}', 0, None)
        text = f'"{tokens.words(start, stop - start)}"'  # words need no escapes
        part = f'{{"content":{text}}}' if self._ask.is_chat else text
        return (role + self._chunk(part, stop, finish_reason)).encode()

    # As JSON text, because there is a chunk per token.
    def _chunk(self, part: str, output: int, finish_reason: str | None) -> str:
        reason = "null" if finish_reason is None else f'"{finish_reason}"'
        end, rest = ',"token_ids":null', ',"kv_transfer_params":null'
        if not self._ask.is_chat:
            end = f',"stop_reason":null,"prompt_token_ids":null{end},"weight_versions":null'
        elif finish_reason:
            end = f',"stop_reason":null{end},"weight_versions":null'
        elif not output:  # the chunk of the role
            end, rest = "", ',"prompt_token_ids":null,"prompt_text":null'
        usage = ""
        if self._ask.continuous_usage:
            so_far: dict[str, int | None] = {**usage_of(len(self._ask.prompt), output)}
            if self._ask.is_chat:
                so_far["completion_tokens_details"] = None
            usage = ',"usage":' + _compact(so_far)
        choice = f'{self._begin}{part},"logprobs":null,"finish_reason":{reason}{end}'
        return f"{choice}}}]{usage}{rest}}}\n\n"

    def last_usage(self, output: int) -> bytes:
        """The event of the usage, without choices."""
        usage = usage_of(len(self._ask.prompt), output)
        return event({**self._head, "choices": [], "usage": usage})


DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    """A server-sent event."""
    return f"data: {_compact(value)}\n\n".encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))

"""Records what vLLM's own handlers answer: `python record.py > vllm_0_33.json`.

It needs vLLM 0.33.0 and no model or GPU: the engine is a stub that emits three tokens for a prompt
of five, and what is recorded is how vLLM's routes, handlers and models write that down.
"""

import asyncio
import json
import sys
from unittest.mock import MagicMock

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata
from vllm.entrypoints.openai.chat_completion import api_router as chat_routes
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion import api_router as completion_routes
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.openai.models.protocol import BaseModelPath
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.outputs import CompletionOutput, RequestOutput

PROMPT = [1, 2, 3, 4, 5]
WORDS = [" the", " a", " of"]

ENGINE = MagicMock(errored=False)
ENGINE.model_config.max_model_len = 2048
COMPLETION = OpenAIServingCompletion(
    ENGINE, MagicMock(), online_renderer=MagicMock(), request_logger=None
)
CHAT = OpenAIServingChat(
    ENGINE, MagicMock(), "assistant", online_renderer=MagicMock(), request_logger=None,
    chat_template=None, chat_template_content_format="auto",
)  # fmt: skip


def output(text, numbers, reason):
    part = CompletionOutput(0, text, numbers, None, None, finish_reason=reason)
    return RequestOutput("r", "p", PROMPT, None, [part], reason is not None, num_cached_tokens=0)


def outputs(streams):
    if not streams:
        return [output("".join(WORDS), [1, 2, 3], "length")]
    return [output(word, [i], "length" if word == WORDS[-1] else None)
            for i, word in enumerate(WORDS)]  # fmt: skip


async def complete(asked, _raw):
    about = RequestResponseMetadata(request_id="cmpl-1")
    if not asked.stream:
        return COMPLETION.request_output_to_completion_response(
            outputs(False), asked, "cmpl-1", 1, "m", None, about
        )

    async def emitted():
        for each in outputs(True):
            yield 0, each

    prompt = {"type": "token", "prompt_token_ids": PROMPT, "prompt": "p"}
    return COMPLETION.completion_stream_generator(
        asked, [prompt], emitted(), "cmpl-1", 1, "m", 1, None, about
    )


async def chat(asked, _raw):
    about = RequestResponseMetadata(request_id="chatcmpl-1")

    async def emitted():
        for each in outputs(asked.stream):
            yield each

    given = (asked, emitted(), "chatcmpl-1", "m", [], MagicMock(), about)
    if asked.stream:
        return CHAT.chat_completion_stream_generator(*given)
    return await CHAT.chat_completion_full_generator(*given)


def served():
    app = FastAPI()
    app.include_router(completion_routes.router)
    app.include_router(chat_routes.router)
    app.state.args = MagicMock(sse_keep_alive_interval=0)
    app.state.enable_server_load_tracking = False
    app.state.openai_serving_completion = MagicMock(create_completion=complete)
    app.state.openai_serving_chat = MagicMock(create_chat_completion=chat)
    return TestClient(app)


def main():
    client, found = served(), []
    prompts = (
        ("/v1/completions", {"prompt": "Once upon a time"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    )
    usages = ({}, {"include_usage": True}, {"continuous_usage_stats": True},
              {"include_usage": True, "continuous_usage_stats": True})  # fmt: skip
    streams = ({}, *({"stream": True} | ({"stream_options": usage} if usage else {})
                     for usage in usages))  # fmt: skip
    for path, prompt in prompts:
        for more in streams:
            asked = {"model": "m", **prompt, "max_tokens": 3, **more}
            reply = client.post(path, json=asked)
            found.append({"path": path, "asked": asked, "status": reply.status_code,
                          "headers": dict(reply.headers), "body": reply.text})  # fmt: skip
    models = OpenAIServingModels(ENGINE, [BaseModelPath("m", "m")])
    listed = JSONResponse(asyncio.run(models.show_available_models()).model_dump())
    found.append({"path": "/v1/models", "asked": None, "status": 200,
                  "headers": {name.decode(): value.decode() for name, value in listed.raw_headers},
                  "body": listed.body.decode()})  # fmt: skip
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What would a prefix cache save the users of a chat?
#
# The client of the chat exists; the GPUs do not.
# Here it talks to a simulated server behind vLLM's API, twice: with a prefix cache and without.
# The record of what it sent is then an ordinary simulation, so the answer needs no stopwatch.
#
# It takes about 5 s of processor time.

# %%
import json
import tempfile
import threading
import urllib.request
from pathlib import Path

import matplotlib.pyplot as plt

import spillway
from spillway import instance, live

SERVER = instance.Server(model="llama-3.1-8b", gpu="l40s").group
TURNS = 12
QUESTION = "Describe in detail the river, its valleys and the people who live there. " * 12

# %% [markdown]
# ## A client
#
# As in any chat, each turn sends the whole conversation again.


# %%
def ask(address, messages):
    body = {"messages": messages, "max_tokens": 150, "ignore_eos": True}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions", json.dumps(body).encode(), method="POST"
    )
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]


def chat(address):
    messages = []
    for _ in range(TURNS):
        messages.append({"role": "user", "content": QUESTION})
        messages.append(ask(address, messages))


# %% [markdown]
# ## A server
#
# At speed 0, simulated time jumps to the next token, and stands still while no request is inside.
# The server ends after five seconds, and returns what it was asked.


# %%
def served(simulation):
    found = []

    def serve():
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "live.yaml"
            found.append(
                live.serve(
                    simulation,
                    port=0,
                    speed=0,
                    record=record,
                    duration_s=5,
                    ready=lambda address: threading.Thread(target=chat, args=(address,)).start(),
                )
            )

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    return found[0]


cached = spillway.Simulation(instances=SERVER)
plain = cached.with_({"instances[0].kv_cache.prefix_caching": False})
results = {
    name: spillway.simulate(served(simulation))
    for name, simulation in (("with a prefix cache", cached), ("without", plain))
}
for name, result in results.items():
    requests = result.requests
    print(
        f"{name}: {len(requests['ttft_s'])} turns, the last prompt has "
        f"{requests['input_tokens'][-1]:,} tokens, its TTFT is {requests['ttft_s'][-1]:.3f} s"
    )

# %%
figure, axes = plt.subplots(figsize=(7, 3.5))
for name, result in results.items():
    axes.plot(range(1, TURNS + 1), result.requests["ttft_s"], marker="o", label=name)
axes.set_xlabel("turn of the chat")
axes.set_ylabel("TTFT (s)")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

# %% [markdown]
# Without a cache, the time to the first token grows with the conversation; with one, it is that of
# the newest message.
#
# **So set** `kv_cache.prefix_caching` in what you simulate as it is set in what you deploy, and put
# your own client in the place of `chat`: it meets the same server at `spillway serve`.

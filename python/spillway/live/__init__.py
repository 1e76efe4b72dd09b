"""A simulated fleet as a server: vLLM's OpenAI-compatible API, at any speed (extra `live`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from spillway._core.cluster import Simulation
    from spillway.loading import Configuration

__all__ = ["serve"]

_LAST_PORT = 65_535


def serve(
    simulation: Configuration,
    *,
    mode: str = "fleet",
    host: str = "127.0.0.1",
    port: int = 8000,
    speed: float = 1.0,
    seed: int = 0,
    model: str | None = None,
    status_profile: str | None = None,
    record: str | Path | None = None,
    tokenizer: str | Path | None = None,
    behind_proxy: bool = False,
    grace_s: float = 30.0,
    duration_s: float | None = None,
    ready: Callable[[str], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Simulation | None:
    """Serves a simulated fleet, or each of its servers, until a signal arrives.

    Requests come from HTTP clients in place of the workload; of that, what stays is the lengths of
    outputs, per tenant. Each token leaves when the simulated server has computed it.

    Parameters
    ----------
    simulation : Simulation or path
        Gateway, router and servers.
    mode : str
        fleet: one port, in front of the gateway and router of the simulation. servers: a port per
        instance, for a gateway or router of your own; those of the simulation are left out.
    host, port : str, int
        Where to listen, in mode servers from this port on; port 0: any free ones.
    speed : float
        Simulated seconds per second. 0: simulated time jumps to the next event, and stands still
        while nothing runs.
    seed : int
        Seed of every random stream.
    model : str
        The name of the model; by default the one that the servers name, else "spillway".
    status_profile : str
        Whose statuses refused requests get: llm-d (by default), vllm or dynamo; in mode servers
        vllm.
    record : path
        A configuration file (.yaml, .yml or .json), written at the end, that repeats what happened:
        `spillway run FILE --seed SEED`. Until then FILE.jsonl holds it. It has lengths and salted
        hashes of prompts, never their text.
    tokenizer : path
        A folder, where the tokenizer of the server is written at the start in the form that load
        generators read (`tokenizer.json`).
    behind_proxy : bool
        Whether to permit an address that other machines reach.
    grace_s : float
        How long streams may go on after SIGTERM before they end with an error (s).
    duration_s : float
        Ends as after SIGTERM once this time has passed (s).
    ready, note : callable
        Called with the address once the server listens, in mode servers with that of each instance
        in turn; with what it leaves out or adds.

    Returns
    -------
    Simulation or None
        What `record` holds; None without it.

    Raises
    ------
    ConfigError
        If the simulation cannot be run, or an argument is out of its range.
    MissingExtraError
        Without the extra `live`.

    """
    from spillway import loading
    from spillway.config.files import dump
    from spillway.live import server, settings, tokens
    from spillway.session import recorded

    settings.check_address(host, behind_proxy=behind_proxy)
    violations = []
    if not grace_s >= 0:
        violations.append(("grace_s", f"{grace_s:g}", "must be >= 0 (s)"))
    if duration_s is not None and not duration_s > 0:
        violations.append(("duration_s", f"{duration_s:g}", "must be > 0 (s)"))
    if not 0 <= port <= _LAST_PORT:
        violations.append(("port", str(port), f"must be >= 0 and <= {_LAST_PORT}"))
    if violations:
        raise config_error(violations)
    live = settings.served(
        loading.as_simulation(simulation),
        mode=mode,
        seed=seed,
        speed=speed,
        model=model,
        status_profile=status_profile,
        record=record,
    )
    if mode == "servers" and port + len(live.max_model_lens) - 1 > _LAST_PORT:
        allowed = f"must be <= {_LAST_PORT - len(live.max_model_lens) + 1}: a port per instance"
        raise config_error([("port", str(port), allowed)])
    if tokenizer is not None:
        tokens.write(tokenizer)
    if note is not None:
        for text in (*live.notes, f"the model is called {live.model!r}"):
            note(text)
    server.run(live, host=host, port=port, grace_s=grace_s, duration_s=duration_s, ready=ready)
    if live.record is None or live.journal is None:
        return None
    repeated = recorded(live.journal)
    if repeated.changes:
        dump(repeated, live.record)
        live.journal.unlink()
    return repeated

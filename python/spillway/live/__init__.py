"""A simulated fleet as a server: vLLM's OpenAI-compatible API, at any speed (extra `live`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.config.classes import config_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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
    vllm_version: str = "0.33.0",
    errors: str | Path | Sequence[Mapping[str, object]] = (),
    admin_port: int | None = None,
    admin_token: str | None = None,
    tenant_keys: str | Path | None = None,
    record: str | Path | None = None,
    tokenizer: str | Path | None = None,
    kv_lease_s: float | None = None,
    kv_load_failure_policy: str = "recompute",
    behind_proxy: bool = False,
    grace_s: float = 30.0,
    duration_s: float | None = None,
    ready: Callable[[str], None] | None = None,
    note: Callable[[str], None] | None = None,
) -> Simulation | None:
    """Serves a simulated fleet, or each of its servers, until a signal arrives.

    Requests come from HTTP clients in place of the workload; of that, what stays is the lengths of
    outputs, per tenant. Each token leaves when the simulated server has computed it. Instances that
    fail (`changes`, `fleet.breakdowns`) do so at their times; in mode servers their ports refuse
    connections, or answer nothing.

    Parameters
    ----------
    simulation : Simulation or path
        Gateway, router and servers.
    mode : str
        fleet: one port, in front of the gateway and router of the simulation. servers: a port per
        instance, for a gateway or router of your own; those of the simulation are left out. Prefill
        and decode instances hand prompts over by the `kv_transfer_params` of vLLM's NIXL connector.
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
    vllm_version : str
        The vLLM whose names the metrics have, 0.10 to 0.33, and which `/version` states.
    errors : path or sequence of mappings
        Rules of errors that requests get on purpose: `error` (rate_limit, invalid_api_key,
        context_length, invalid_request, model_not_found, server_error or unavailable; drop: the
        connection breaks without an answer; cut: after the first token), `share` of the requests
        (1 by default), `from_s` and `to_s` (simulated s), in mode servers `instance`. A path: a
        YAML or JSON file of them. The first rule that hits a request counts.
    admin_port, admin_token : int, str
        Port of the administrative interface on 127.0.0.1 (0: any free one), and the token, of at
        least 16 characters, that each request to it states. None: there is none.
    tenant_keys : path
        A YAML or JSON file that names the tenants of API keys (`authorization: Bearer KEY`) by
        salted hashes: `salt` (32 to 128 hexadecimal digits) and `tenants`, lists of SHA-256 of salt
        and key by tenant. Headers that name a tenant are stronger; other keys are those of
        `default`.
    record : path
        A configuration file (.yaml, .yml or .json), written at the end, that repeats what happened:
        `spillway run FILE --seed SEED`, if a request came. Until then FILE.jsonl holds it. It has
        lengths and salted hashes of prompts, never their text.
    tokenizer : path
        A folder, where the tokenizer of the server is written at the start in the form that load
        generators read (`tokenizer.json`).
    kv_lease_s : float
        In mode servers, how long a server keeps a prompt that no other one asks for (simulated s);
        by default as vLLM: 30 s from 0.22 on, 480 s before.
    kv_load_failure_policy : str
        In mode servers, what becomes of a request whose prompt cannot be read because its server is
        gone or unknown: recompute, as vLLM's setting of this name, or fail, with status 500.
    behind_proxy : bool
        Whether to permit an address that other machines reach.
    grace_s : float
        How long streams may go on after SIGTERM before they end with an error (s).
    duration_s : float
        Ends as after SIGTERM once this time has passed (s).
    ready, note : callable
        Called with the address once the server listens, in mode servers with that of each instance
        in turn; with what is known of the servers' step times, and what it leaves out or adds.

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
    if (admin_port is None) != (admin_token is None):
        violations.append(("admin_token", "", "goes with admin_port"))
    if admin_port is not None and not 0 <= admin_port <= _LAST_PORT:
        violations.append(("admin_port", str(admin_port), f"must be >= 0 and <= {_LAST_PORT}"))
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
        vllm_version=vllm_version,
        errors=errors,
        admin_token=admin_token,
        tenant_keys=tenant_keys,
        kv_lease_s=kv_lease_s,
        kv_load_failure_policy=kv_load_failure_policy,
    )
    if mode == "servers" and port + len(live.max_model_lens) - 1 > _LAST_PORT:
        allowed = f"must be <= {_LAST_PORT - len(live.max_model_lens) + 1}: a port per instance"
        raise config_error([("port", str(port), allowed)])
    if tokenizer is not None:
        tokens.write(tokenizer)
    if note is not None:
        for text in (*live.notes, f"the model is called {live.model!r}"):
            note(text)
    server.run(
        live,
        host=host,
        port=port,
        grace_s=grace_s,
        duration_s=duration_s,
        ready=ready,
        admin_port=admin_port,
        note=note,
    )
    if live.record is None or live.journal is None:
        return None
    repeated = recorded(live.journal)
    if settings.has_requests(repeated):
        dump(repeated, live.record)
    live.journal.unlink()
    return repeated

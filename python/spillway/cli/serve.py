"""`spillway serve CONFIG`."""

from __future__ import annotations

import itertools
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.cli import configuration, output
from spillway.config.classes import config_error
from spillway.config.filesystem import read_text, reason

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    configuration.add_arguments(parser)
    parser.add_argument(
        "--mode", default="fleet", choices=("fleet", "servers"),
        help="fleet: one port, in front of gateway and router; servers: a port per instance, for a "
        "gateway or router of your own (default fleet)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of every random stream (default 0)"
    )
    parser.add_argument(
        "--speed", type=float, default=1.0, metavar="FACTOR",
        help="simulated seconds per second (default 1); 0: jump from event to event",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=int, default=8000,
        help="port (default 8000), in mode servers that of the first instance; 0: any free ones",
    )  # fmt: skip
    parser.add_argument(
        "--behind-proxy", action="store_true",
        help="permit an address that other machines reach: a proxy limits the callers",
    )  # fmt: skip
    parser.add_argument(
        "--model", help="name of the model (default: that of the servers, else spillway)"
    )
    parser.add_argument(
        "--status-profile", choices=("llm-d", "vllm", "dynamo"),
        help="whose statuses refused requests get (default llm-d; in mode servers vllm)",
    )  # fmt: skip
    parser.add_argument(
        "--vllm-version", default="0.33.0", metavar="VERSION",
        help="whose names the metrics have, 0.10 to 0.33 (default 0.33.0)",
    )  # fmt: skip
    parser.add_argument(
        "--errors", type=Path, metavar="FILE",
        help="rules of errors that requests get on purpose: a list of mappings, YAML or JSON",
    )  # fmt: skip
    parser.add_argument(
        "--admin-port", type=int, metavar="PORT",
        help="serve the administrative interface on this port of 127.0.0.1; 0: any free one",
    )  # fmt: skip
    parser.add_argument(
        "--admin-token-file", type=Path, metavar="FILE",
        help="holds the token of the administrative interface (default: drawn and printed)",
    )  # fmt: skip
    parser.add_argument(
        "--tenant-keys", type=Path, metavar="FILE",
        help="the tenants of API keys, by salted hashes: YAML or JSON with `salt` and `tenants`",
    )  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE",
        help="write at the end a configuration that `spillway run` repeats; until then, FILE.jsonl",
    )  # fmt: skip
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FOLDER",
        help="write there at the start the server's tokenizer, which load generators read",
    )  # fmt: skip
    parser.add_argument(
        "--kv-lease", type=float, dest="kv_lease_s", metavar="S",
        help="in mode servers, how long a server keeps a prompt that no other one asks for "
        "(default as vLLM: 30 s from 0.22 on, 480 s before)",
    )  # fmt: skip
    parser.add_argument(
        "--kv-load-failure-policy", default="recompute", choices=("recompute", "fail"),
        help="in mode servers, what becomes of a request whose prompt cannot be read, because its "
        "server is gone or unknown (default recompute)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=float, default=30.0, metavar="S",
        help="how long streams may go on after SIGTERM (default 30 s)",
    )  # fmt: skip
    parser.add_argument(
        "--for", type=float, dest="duration_s", metavar="S", help="end after this time"
    )


def run(options: argparse.Namespace) -> int:
    """Serves a simulated fleet."""
    from spillway.live import serve
    from spillway.live.server import ListenError
    from spillway.live.settings import has_requests

    if not 0 <= options.seed < 2**64:
        raise config_error([("--seed", str(options.seed), "must be >= 0 and < 2**64")])
    simulation = configuration.load(options)
    configuration.report_findings(simulation)

    token = _admin_token(options)
    numbers = itertools.count()

    def ready(address: str) -> None:
        name = f"instance {next(numbers)}" if options.mode == "servers" else "the fleet"
        output.say(f"serves {name} at {address}/v1, {options.speed:g} x real time")

    try:
        repeated = serve(
            simulation,
            mode=options.mode,
            host=options.host,
            port=options.port,
            speed=options.speed,
            seed=options.seed,
            model=options.model,
            status_profile=options.status_profile,
            vllm_version=options.vllm_version,
            errors=() if options.errors is None else options.errors,
            admin_port=options.admin_port,
            admin_token=token,
            tenant_keys=options.tenant_keys,
            record=options.record,
            tokenizer=options.tokenizer,
            kv_lease_s=options.kv_lease_s,
            kv_load_failure_policy=options.kv_load_failure_policy,
            behind_proxy=options.behind_proxy,
            grace_s=options.grace,
            duration_s=options.duration_s,
            ready=ready,
            note=output.say,
        )
    except ListenError as error:
        raise config_error(
            [(error.filename, "", f"cannot listen there: {reason(error)}")]
        ) from None
    if repeated is not None and not has_requests(repeated):
        output.say("no request came: nothing is recorded")
    elif repeated is not None:
        output.say(f"wrote {options.record}: spillway run {options.record} --seed {options.seed}")
    return 0


def _admin_token(options: argparse.Namespace) -> str | None:
    file = options.admin_token_file
    if options.admin_port is None:
        if file is not None:
            raise config_error([("--admin-token-file", str(file), "goes with --admin-port")])
        return None
    if file is not None:
        return read_text(file).strip()
    token = secrets.token_urlsafe(24)
    output.say(f"token of the administrative interface: {token}")
    return token

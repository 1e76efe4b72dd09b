"""`spillway servers [MODEL --gpu GPU]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway._core.instance import InstanceGroup
from spillway.cli import output
from spillway.config.classes import config_error
from spillway.config.filesystem import replacing
from spillway.config.yaml import to_flow, to_yaml
from spillway.servers import DEFAULT_ENGINE, Origin, Server, with_servers
from spillway.servers.kernel_tables import kernel_table
from spillway.servers.listing import catalog, table

if TYPE_CHECKING:
    import argparse

    from spillway._core.cluster import Simulation


_DRAWS = 20
_ROUNDS = 4
_FIGURES = {
    "mean_ttft_ms": "TTFT, ms",
    "mean_tpot_ms": "TPOT, ms",
    "output_throughput": "output tokens/s",
    "request_throughput": "requests/s",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL",
        help="a model of the catalog or the path of a config.json; without one: list the catalog",
    )  # fmt: skip
    parser.add_argument("--gpu", help="an accelerator of the catalog")
    for name, text in {
        "tp": "tensor-parallel size",
        "dp": "data-parallel size",
        "pp": "pipeline-parallel size",
        "max-num-seqs": "maximum number of sequences",
        "max-num-batched-tokens": "maximum number of tokens of a step",
        "max-model-len": "maximum number of tokens of a request",
        "num-kv-blocks": "KV blocks, as the engine's log states them",
    }.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--enable-expert-parallel", action="store_true", default=None)
    parser.add_argument("--dtype", help="type of the weights (default: the published one)")
    parser.add_argument("--kv-cache-dtype", help="bf16 or fp8")
    parser.add_argument("--engine", help=f"version of vLLM (default {DEFAULT_ENGINE})")
    parser.add_argument("--gpu-memory-utilization", type=float, metavar="SHARE")
    parser.add_argument("--input-tokens", type=int, default=1000, help="prompt (default 1000)")
    parser.add_argument("--output-tokens", type=int, default=200, help="output (default 200)")
    parser.add_argument(
        "--table", choices=["aiconfigurator"],
        help="step times from a package's kernel measurements, in place of the physics model",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE",
        help="write the server, for `server: FILE` in a configuration",
    )  # fmt: skip
    output.add_json(
        parser,
        "server, provenance, settings, kv_tokens, loads; of the catalog: models, accelerators",
    )


def run(options: argparse.Namespace) -> int:
    """Prints the catalog, or what a server is, what it holds, and how fast it is."""
    if options.model is None:
        output.show(options, table(), catalog)
        return 0
    if options.gpu is None:
        raise config_error([("--gpu", "", "is missing; `spillway servers` lists accelerators")])
    output.check_at_least(options, 1, "input_tokens", "output_tokens")
    names = ("tp", "dp", "pp", "enable_expert_parallel", "dtype", "kv_cache_dtype", "engine",
             "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
             "num_kv_blocks")  # fmt: skip
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    server = Server(model=options.model, gpu=options.gpu, **given)
    if (options.table is None) != (options.output is None):
        missing, other = ("--output", "--table") if options.table else ("--table", "--output")
        raise config_error([(missing, "", f"is missing: {other} needs it")])
    shown = _Shown.physics(server) if options.table is None else _with_table(server, options.output)
    loads = _loads(shown.group, options.input_tokens, options.output_tokens)
    output.show(options, _text(shown, loads), lambda: _document(shown, loads))
    return 0


class _Shown(NamedTuple):
    """A server, its settings as an instance, and where they come from."""

    server: Server
    group: InstanceGroup
    origins: list[Origin]
    step_times: str
    settings: object

    @classmethod
    def physics(cls, server: Server) -> _Shown:
        source = server.knowledge.source
        return cls(server, server.group, server.origins(), source, server.settings)


def _with_table(server: Server, file: Path) -> _Shown:
    table = kernel_table(server)
    with replacing(file) as temporary:
        temporary.write_text(to_yaml(table.to_dict()), encoding="utf-8")
        read = with_servers({"instances": {"server": str(temporary)}}, Path())
        group = InstanceGroup.from_dict(read["instances"][0])
    origins = [origin for origin in server.origins() if not origin.setting.startswith("latency.")]
    return _Shown(server, group, origins, f"table of {table.source}, unvalidated", str(file))


def _loads(group: InstanceGroup, input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Figures with one user, and with as many as the server holds, each with its interval."""
    from spillway import simulate

    room = group.num_kv_blocks * group.block_size_tokens // (input_tokens + output_tokens)
    if not room or input_tokens + output_tokens > group.max_model_len:
        allowed = f"with the output must be <= {group.max_model_len}"
        raise config_error([("--input-tokens", str(input_tokens), allowed)])
    most = group.data_parallel_size * min(group.max_num_seqs, room)
    found = {}
    for name, users in (("light load", 1), ("saturated", most)):
        simulation = _closed_loop(group, users, input_tokens, output_tokens)
        summary = simulate(simulation).summary()
        intervals = simulate(simulation, uncertainty=_DRAWS)
        found[name] = {"users": users} | {
            figure: {"value": summary[figure], "low": intervals[figure][0],
                     "high": intervals[figure][1]}
            for figure in _FIGURES if figure in intervals
        }  # fmt: skip
    return found


def _closed_loop(
    group: InstanceGroup, users: int, input_tokens: int, output_tokens: int
) -> Simulation:
    from spillway import Simulation, workload

    client = workload.Client(
        arrivals=workload.ClosedLoop(users=users),
        num_requests=max(8, _ROUNDS * users),
        input_tokens=workload.Uniform(
            min_tokens=max(1, input_tokens * 4 // 5), max_tokens=input_tokens
        ),
        output_tokens=workload.Uniform(
            min_tokens=max(1, output_tokens * 4 // 5), max_tokens=output_tokens
        ),
    )
    return Simulation(workload=workload.Synthetic(clients=[client]), instances=[group])


def _document(shown: _Shown, loads: dict[str, Any]) -> dict[str, Any]:
    group = shown.group
    return {
        "server": shown.settings,
        "provenance": group.provenance,
        "settings": [origin._asdict() for origin in shown.origins],
        "kv_tokens": group.num_kv_blocks * group.block_size_tokens,
        "loads": loads,
    }


def _text(shown: _Shown, loads: dict[str, Any]) -> str:
    server, group, origins = shown.server, shown.group, shown.origins
    model = server.architecture
    width = max(len(origin.setting) for origin in origins)
    values = max(len(origin.value) for origin in origins)
    tokens = group.num_kv_blocks * group.block_size_tokens
    longest = tokens // group.max_model_len
    where = " for each batch in flight" if server.pp > 1 else " on each rank" * (server.dp > 1)
    lines = [
        (
            f"{model.name} ({model.repository or model.source}) on "
            f"{server.tp * server.dp * server.pp} x {server.accelerator.name}, "
            f"{server.weight_dtype} weights, {server.version.name}"
        ),
        "",
        *(
            f"  {origin.setting:<{width}}  {origin.value:>{values}}  {origin.origin}"
            for origin in origins
        ),
        "",
        (
            f"  holds {tokens:,} tokens of KV{where}: {longest:,} "
            f"request{'s' * (longest != 1)} of maximum length"
        ),
        "",
    ]
    for name, figures in loads.items():
        lines.append(
            f"  {name}, {figures['users']:,} user{'s' * (figures['users'] > 1)} (90% interval)"
        )
        for figure, label in _FIGURES.items():
            if found := figures.get(figure):
                interval = f"({found['low']:,.4g} to {found['high']:,.4g})"
                lines.append(f"    {label:<16} {found['value']:>10,.4g}  {interval}")
    lines += [
        "",
        f"  step times: {shown.step_times}",
        "",
        f"instances: {to_flow({'server': shown.settings})}",
    ]
    return "\n".join(lines)

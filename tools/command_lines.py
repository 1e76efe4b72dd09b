"""The command lines that Spillway writes for vLLM, before vLLM's own parser.

    python tools/command_lines.py [--folder DIR] [VERSION …]

For each version of the flag tables: the golden command lines, exports of a server with each
setting that has a flag, and exports of random simulations are parsed as `vllm serve` parses them,
and every value must arrive as it was written. Other lines must be refused: misspelled flags, flags
of newer versions, values of another type. DIR (`build/command_lines`) keeps the Python files of the
wheels and an environment with what they import, which takes some gigabytes. Where a wheel or the
environment cannot be had, a line says so and the version is skipped. Exit status 1: a verdict is
not as wanted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import types
import venv
import warnings
import zipfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_PARSERS = (  # where make_arg_parser is, by version
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
_EXTENSIONS = ("_C", "_moe_C", "_C_stable_libtorch", "_rocm_C", "cumem_allocator")
_IMPORTED = """
    torch transformers fastapi aiohttp openai openai-harmony anthropic mcp msgspec gguf
    mistral_common numpy pillow opencv-python-headless prometheus_client protobuf psutil
    prometheus-fastapi-instrumentator py-cpuinfo pybase64 pydantic pydantic-extra-types pyzmq cbor2
    blake3 cachetools cloudpickle diskcache einops ijson lark llguidance lm-format-enforcer
    outlines_core partial-json-parser pycountry python-json-logger python-multipart regex
    sentencepiece setproctitle tiktoken tokenizers uvicorn uvloop watchfiles xgrammar
    opentelemetry-api requests tqdm PyYAML Jinja2 jsonschema
""".split()  # noqa: SIM905
_REFUSED = (
    *("--max-num-seq-s 4", "--max-num-queued-prayers 3", "--max-num-seqs many"),
    *("--scheduling-policy lifo", "--max-model-len", "--async-scheduling=yes"),
    "--speculative-config '{method: ngram'",
)
_FIRST = {  # the version from which on a flag exists
    "--scheduler-reserve-full-isl": (0, 19),
    "--watermark 0.01": (0, 24),
    "--prefill-schedule-interval 2": (0, 24),
    "--max-num-queued-reqs 9": (0, 29),
    "--max-num-active-seqs 9": (0, 33),
    "--long-prefill-token-threshold-adaptive": (0, 33),
}
_SERVERS: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 2},
    {"pp": 2, "tp": 2},
    {"model": "deepseek-v3", "gpu": "h200", "dp": 8, "enable_expert_parallel": True},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "bf16"},
    {"gpu_memory_utilization": 0.85},
    {"max_num_seqs": 96, "max_num_batched_tokens": 2048, "max_model_len": 8192},
    *({"block_size_tokens": size} for size in (1, 8, 16, 32, 64, 128, 256)),
)
_SETTINGS: tuple[dict[str, Any], ...] = (
    {"chunked_prefill": False},
    {"long_prefill_token_threshold": 512, "long_prefill_token_threshold_adaptive": True},
    {"prefill_schedule_interval": 3},
    {"max_num_active_seqs": 48},
    {"speculative_decoding": {"num_drafts": 4, "method": "ngram"}},
    {"speculative_decoding": {"num_drafts": 3, "method": "eagle"}},
    {"speculative_decoding": {"num_drafts": 2, "method": "draft_model"}},
    {"kv_cache": {"watermark": 0.00001}},
    {"kv_cache": {"prefix_caching": False, "reserve_full_prompt": False}},
    {"scheduler": {"kind": "priority_fcfs"}},
    {"async_scheduling": False},
    {"ingress": {"kind": "vllm_queue_limits", "max_num_queued_reqs": 200}},
    {"ingress": {"kind": "vllm_queue_limits", "max_num_queued_tokens": 12345}},
    {"data_parallel_size": 4},
)
_RANDOM = 40


# --- the command lines ----------------------------------------------------------------------------


def lines(version: str, folder: Path) -> list[dict[str, Any]]:
    """Command lines of a version: name, text, whether they must pass.

    `folder`: for a temporary file.
    """
    sys.path.insert(0, str(_ROOT / "tests"))
    import spillway
    from spillway.files.deployments import export

    def loaded(group: dict[str, Any]) -> spillway.Simulation:
        path = folder / "one.yaml"
        path.write_text(json.dumps({"schema": 1, "profile": "vllm", "instances": [group]}))
        return spillway.load(path)

    from support.random_simulations import random_simulation

    found = [
        {"name": f"golden {path.name}", "text": path.read_text(encoding="utf-8"), "passes": True}
        for path in sorted((_ROOT / f"tests/data/deployments/vllm_{version}").iterdir())
    ]
    given = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm-0.33"}
    groups = [{"server": {**given, **facts}} for facts in _SERVERS]
    groups += [{"server": given, **settings} for settings in _SETTINGS]
    simulations = [loaded(group) for group in groups]
    simulations += [random_simulation(f"command lines {i}").simulation for i in range(_RANDOM)]
    for i, simulation in enumerate(simulations):
        blocks = {f"instances[{j}].block_size_tokens": 16 for j in range(len(simulation.instances))}
        with contextlib.suppress(spillway.ConfigError):  # a size of blocks that it has not
            known = simulation if i < len(groups) else simulation.with_(blocks)
            files = export(known, to=f"vllm@{version}", allow_lossy=True).files
            found += [
                {"name": f"export {i} {name}", "text": text, "passes": True}
                for name, text in files.items()
            ]
    number = tuple(map(int, version.split(".")))
    tails = dict.fromkeys(_REFUSED, False) | {
        tail: number >= first for tail, first in _FIRST.items()
    }
    return found + [
        {"name": tail, "text": f"vllm serve $MODEL {tail}\n", "passes": passes}
        for tail, passes in tails.items()
    ]


# --- the parser -----------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """The words of a command line, as bash gives them to `vllm`."""
    script = "vllm() { printf '%s\\0' \"$@\"; }\n" + text
    variables = {"MODEL": "org/model", "DRAFT_MODEL": "org/draft", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, env=variables, check=True
    )
    return run.stdout.split("\0")[:-1]


class Parser:
    """The parser of `vllm serve` in the Python files of a wheel, without an accelerator."""

    def __init__(self, source: Path) -> None:
        sys.path.insert(0, str(source))
        sys.argv = ["vllm"]
        for name in _EXTENSIONS:
            sys.modules[f"vllm.{name}"] = types.ModuleType(f"vllm.{name}")
        platforms = importlib.import_module("vllm.platforms")
        platforms.current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
        where = next(
            name for name in _PARSERS if (source / f"{name.replace('.', '/')}.py").exists()
        )
        self.module = importlib.import_module(where)
        try:
            utilities = importlib.import_module("vllm.utils.argparse_utils")
        except ImportError:
            utilities = importlib.import_module("vllm.utils")
        self.engine = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
        self.parser = utilities.FlexibleArgumentParser()
        commands = self.parser.add_subparsers(dest="subparser")
        self.serve = self.module.make_arg_parser(commands.add_parser("serve"))

    def verdict(self, text: str) -> str:
        """Empty if a command line passes, and its values arrive; else what is wrong."""
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors):
                words = words_of(text)
                given = self.parser.parse_args(words)
                given.model = given.model_tag or given.model
                self.module.validate_parsed_serve_args(given)
                engine = self.engine.from_cli_args(given)
        except SystemExit:
            return errors.getvalue().strip().splitlines()[-1]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return self._changed(words, engine)

    def _changed(self, words: list[str], engine: Any) -> str:
        """The flags whose values have not arrived."""
        other = []
        for word, value in zip(words, [*words[1:], ""], strict=True):
            if not word.startswith("--"):
                continue
            action = self.serve._option_string_actions[word]
            got = getattr(engine, action.dest)
            wanted: Any = not word.startswith("--no-") if action.nargs == 0 else value
            if (json.loads(value) if isinstance(got, dict) else type(got)(wanted)) != got:
                other.append(f"{word} is {got}")
        return ", ".join(other)


def parse(source: Path, path: Path) -> None:
    """Prints the verdict of each line of a file, in the interpreter that has what vLLM imports."""
    parser = Parser(source)
    verdicts = [parser.verdict(line["text"]) for line in json.loads(path.read_text())]
    print(f"@{json.dumps(verdicts)}")


# --- all ------------------------------------------------------------------------------------------


def prepared(folder: Path, version: str, full: str) -> str:
    """Makes the environment and the Python files of a version; empty, or why it cannot be."""
    from generate_flag_tables import wheel

    if not (folder / "venv" / "done").exists():
        venv.create(folder / "venv", clear=True, with_pip=True)
        pip = [folder / "venv" / "bin" / "pip", "install", "--quiet", *_IMPORTED]
        if subprocess.run(pip, check=False).returncode:
            return "what its parser imports cannot be had"
        (folder / "venv" / "done").touch()
    source = folder / "src" / full
    if not source.exists():
        downloads = folder / "wheels"
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            path = wheel("vllm", full, downloads)
        except (subprocess.CalledProcessError, StopIteration):
            return f"the wheel of {version} cannot be had"
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith((".py", "/METADATA"))]
            archive.extractall(source, names)
        path.unlink()
    return ""


def main() -> int:
    """Command line; 1 if a verdict is not as wanted."""
    from generate_flag_tables import TABLES

    versions = TABLES["vllm"].versions
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, default=_ROOT / "build" / "command_lines")
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=list(versions))
    options = parser.parse_args()
    if unknown := set(options.versions) - set(versions):
        parser.error(f"{', '.join(sorted(unknown))}: must be some of {', '.join(versions)}")
    folder, wrong = options.folder.resolve(), 0
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for version in options.versions:
        full = versions[version]
        if problem := prepared(folder, version, full):
            print(f"vllm {version}: skipped: {problem}", flush=True)
            continue
        wanted = lines(version, folder)
        path = folder / f"{version}.json"
        path.write_text(json.dumps(wanted), encoding="utf-8")
        run = subprocess.run(
            [folder / "venv" / "bin" / "python", __file__, "--parse", folder / "src" / full, path],
            capture_output=True,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            check=False,
        )
        found = [line for line in run.stdout.splitlines() if line.startswith("@")]
        if not found:
            print(f"vllm {version}: has no parser any more\n{run.stderr[-2000:]}", flush=True)
            wrong += 1
            continue
        both = list(zip(wanted, json.loads(found[0][1:]), strict=True))
        bad = [(line, verdict) for line, verdict in both if line["passes"] == bool(verdict)]
        wrong += len(bad)
        num_passing = sum(line["passes"] for line in wanted)
        print(
            f"vllm {full}: {num_passing} command lines must pass, {len(wanted) - num_passing} must "
            f"be refused: {len(bad)} are not as wanted",
            flush=True,
        )
        for line, verdict in bad:
            print(f"    {line['name']}: {verdict or 'passes'}\n{line['text']}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--parse"]:
        parse(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(main())

"""Recordings of the schedulers of vLLM and SGLang on fresh random cases, or on given ones.

    python tests/parity/live/record.py [--system vllm|sglang] [--versions VERSION …]
        [--cases NUMBER|FILE] [--seed N] [--out DIR] [--folder DIR]

Downloads the wheels of the versions, makes an environment with what they import, and writes
`cases.jsonl.gz` and `recordings-SYSTEM-VERSION.jsonl.gz`; `spillway validate vllm-scheduler` reads
those of vLLM. FOLDER (`build/recordings/environment`) keeps the environment and the files of the
wheels: some gigabytes, less where the index of PyTorch has a wheel without CUDA. Exit status 1:
something could not be had, or an engine got stuck.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import json
import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[2]
_TORCH = "torch==2.14.0"
_TORCH_WITHOUT_CUDA = "https://download.pytorch.org/whl/cpu"
_IMPORTED = """
    numpy pydantic pydantic-extra-types msgspec transformers pyzmq cloudpickle psutil regex
    cachetools cbor2 prometheus_client py-cpuinfo requests tqdm PyYAML jinja2 pillow protobuf
    aiohttp pybase64 openai openai-harmony blake3 diskcache partial-json-parser setproctitle fastapi
    opentelemetry-api watchfiles tiktoken einops uvloop xgrammar llguidance gguf
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class System:
    """An engine whose scheduler is recorded."""

    versions: tuple[str, ...]
    also_imported: tuple[str, ...] = ()
    kept: tuple[str, ...] = ("",)
    """Ends of the names of the files of a wheel that are needed."""


SYSTEMS = {
    "vllm": System(("0.19.1", "0.33.0"), kept=(".py", "/METADATA")),
    "sglang": System(
        ("0.5.23",),
        also_imported=(
            *("orjson", "IPython", "torchvision", "dill", "sentencepiece", "compressed-tensors"),
            *("loguru", "uvicorn"),
        ),
    ),
}


def environment(name: str, folder: Path) -> Path:
    """The interpreter of an environment with all that the versions of a system import."""
    python = folder / name / "venv" / "bin" / "python"
    done = folder / name / "venv" / "done"
    if not done.exists():
        venv.create(folder / name / "venv", clear=True, with_pip=True)
        install: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        small = [*install, "--retries", "0", "--index-url", _TORCH_WITHOUT_CUDA, _TORCH]
        if subprocess.run(small, check=False, capture_output=True).returncode:
            print(f"{_TORCH_WITHOUT_CUDA} cannot be reached: PyTorch with CUDA instead", flush=True)
        subprocess.run([*install, _TORCH, *_IMPORTED, *SYSTEMS[name].also_imported], check=True)
        done.touch()
    return python


def source(name: str, version: str, folder: Path) -> Path:
    """The files of a version."""
    target = folder / name / "src" / version
    if not target.exists():
        sys.path.insert(0, str(_ROOT / "tools"))
        from generate_flag_tables import wheel

        downloads = folder / "wheels"
        downloads.mkdir(parents=True, exist_ok=True)
        path = wheel(name, version, downloads)
        with zipfile.ZipFile(path) as archive:
            names = [each for each in archive.namelist() if each.endswith(SYSTEMS[name].kept)]
            archive.extractall(target, names)
        path.unlink()
    return target


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, which may be packed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write(path: Path, found: list[dict[str, Any]]) -> None:
    """Writes lines, packed; the same lines give the same bytes."""
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in found)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def record(name: str, version: str, folder: Path, out: Path) -> bool:
    """Records the cases in a folder with a version; whether each came to its end."""
    path = out / f"recordings-{name}-{version}.jsonl.gz"
    # Without bytecode each run compiles all that it imports.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [
            environment(name, folder),
            _HERE / f"{name}_engine.py",
            source(name, version, folder),
            out / "cases.jsonl.gz",
            path,
        ],
        env={**variables, "CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    found = read(path)
    stuck = [each["id"] for each in found if each["stuck"]]
    num_steps = sum(len(each["steps"]) for each in found)
    print(f"{name} {version}: {len(found)} cases, {num_steps} steps", flush=True)
    if stuck:
        print(f"    stuck: {', '.join(stuck)}")
    return not stuck


def main() -> int:
    """Command line; 1 if something could not be recorded."""
    import random_cases
    import sglang_cases

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--system", choices=SYSTEMS, default="vllm")
    parser.add_argument("--versions", nargs="+", metavar="VERSION", help="default: those tried")
    parser.add_argument("--cases", metavar="NUMBER|FILE", default="1200")
    today = int(f"{dt.datetime.now(tz=dt.timezone.utc):%Y%m%d}")
    parser.add_argument("--seed", type=int, default=today, help="default: today, as YYYYMMDD")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "recordings")
    folder = _ROOT / "build" / "recordings" / "environment"
    parser.add_argument("--folder", type=Path, default=folder)
    options = parser.parse_args()
    out, folder = options.out.resolve(), options.folder.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.cases.isdigit():
        cases = {"vllm": random_cases.cases, "sglang": sglang_cases.cases}[options.system]
        found = cases(int(options.cases), options.seed)
        print(f"{len(found)} cases of seed {options.seed}", flush=True)
    else:
        found = read(Path(options.cases))
    write(out / "cases.jsonl.gz", found)
    try:
        complete = [
            record(options.system, version, folder, out)
            for version in options.versions or SYSTEMS[options.system].versions
        ]
    except (subprocess.CalledProcessError, StopIteration) as error:
        print(f"cannot be recorded: {error!r}", file=sys.stderr)
        return 1
    return 0 if all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())

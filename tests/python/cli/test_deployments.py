"""`spillway export`, `spillway import` and `spillway diff`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from spillway import Simulation, load
from spillway.config.files import dump, read_settings
from spillway.files.deployments import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFIG = """\
schema: 1
router: least_loaded
instances: {max_num_seqs: 64, scheduler: sjf}
"""


def test_files_are_written_and_read(
    tmp_path: Path, called: Callable[..., Any], printed: Callable[..., str]
) -> None:
    config, folder, back = (tmp_path / name for name in ("a.yaml", "deploy", "b.yaml"))
    config.write_text(CONFIG)
    out = printed("export", config, "--to", "vllm@0.29", "--out", folder)
    assert out == (
        f"wrote {folder / 'vllm-0.sh'}\nvllm@0.29 does not carry:\n"
        "  router = {kind: least_loaded, ties: first}: becomes "
        "{kind: round_robin, per_model: true}; not up to vllm\n"
        "  instances[0].scheduler = {kind: sjf, length: prompt}: becomes {kind: fcfs}; "
        "vLLM orders its queue by arrival, or by priority and arrival\n"
        "note: instances[].engine_rules, instances[].kv_cache.generated_tokens: deployed has those "
        "of vllm 0.29\n"
    )
    out = printed("import", folder, "--from", "vllm", "--onto", config, "-o", back)
    assert out == f"wrote {back}; run it with: spillway run {back}\n"
    assert load(back).instances[0].max_num_seqs == 64
    status, out, _ = called("diff", config, back)
    assert status == 0
    differences = out.splitlines()
    assert "instances[0].scheduler: {kind: sjf, length: prompt} -> {kind: fcfs}" in differences
    # The rest are the rules of the version.
    rules = ("instances[0].scheduler", "instances[0].engine_rules", "instances[0].kv_cache")
    assert all(line.startswith(rules) for line in differences)


def test_without_a_folder_everything_is_printed(tmp_path: Path, called: Callable[..., Any]) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("schema: 1\n")
    status, out, _ = called("export", config, "--to", "vllm")
    assert status == 0
    assert out.startswith("# --- vllm-0.sh\nvllm serve ${MODEL:?} \\\n  --max-num-seqs 1024 \\\n")
    said, note = out.splitlines()[-2:]
    assert said == "vllm@0.33 carries every setting that it decides"
    assert note.endswith("deployed has those of vllm 0.33")
    command = tmp_path / "serve.sh"
    command.write_text("vllm serve m --seed 3")
    status, out, err = called("import", command, "--from", "vllm")
    assert status == 0
    # What differs from the defaults: the length, and the rules of the version.
    (group,) = yaml.safe_load(out)["instances"]
    assert group.keys() == {"max_model_len", "kv_cache", "engine_rules"}
    assert group["max_model_len"] == 0
    assert err == (
        "spillway: note: no file decides gateway.admission (always_admit), gateway.limit "
        "(unlimited), router (round_robin): the defaults\n"
        f'spillway: not simulated: {command}: model = "m": describes the server: give gpu, and it '
        "is computed\n"
        f"spillway: not simulated: {command}: seed = 3: has no counterpart in a simulation\n"
    )


def test_an_imported_file_keeps_the_origin_of_servers_and_traces(
    tmp_path: Path, printed: Callable[..., str]
) -> None:
    trace, config, back = (tmp_path / name for name in ("a.csv", "a.yaml", "b.yaml"))
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,20,5\n")
    config.write_text(
        "schema: 1\nworkload: {kind: trace, file: a.csv}\n"
        "instances: [{server: {model: llama-3.1-8b, gpu: h100}}]\n"
    )
    command = tmp_path / "serve.sh"
    command.write_text("vllm serve llama-3.1-8b --max-num-seqs 32 --async-scheduling")
    printed("import", command, "--from", "vllm@0.19", "--onto", config, "-o", back)
    text = back.read_text()
    assert "a.csv\n" in text
    assert "provenance: 'server {model: llama-3.1-8b" in text
    assert "gateway" not in text
    assert load(back).instances[0].max_num_seqs == 32


def test_diff_as_json(tmp_path: Path, called: Callable[..., Any]) -> None:
    one, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text("schema: 1\n")
    other.write_text("schema: 1\ntenants: [{name: default}]\ngateway: {max_queued: 3}\n")
    status, out, _ = called("diff", one, other, "--json")
    assert status == 0
    tenants, most = json.loads(out)
    assert most == {"path": "gateway.max_queued", "before": None, "after": 3}
    assert tenants["path"] == "tenants[default]"
    assert "before" not in tenants
    assert called("diff", one, one)[:2] == (0, "no differences\n")


def test_unknown_systems_are_refused(tmp_path: Path, called: Callable[..., Any]) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("schema: 1\n")
    status, _, err = called("export", config, "--to", "nginx")
    assert (status, err) == (
        2,
        f"spillway: to = 'nginx': must be one of {', '.join(TARGETS)}\n",
    )
    status, _, err = called("import", config, "--from", "llm-d", "--gpu", "h100")
    assert (status, err) == (
        2,
        "spillway: gpu = 'h100': is an option of sglang, tensorrt-llm, vllm\n",
    )


GUARDED = """\
schema: 1
workload: {kind: synthetic, requests_per_s: 5, num_requests: 40}
slo_classes: [{name: standard, target_ttft_s: 1}]
gateway: {limit: {kind: token_budget, max_tokens_in_flight: 3000}}
"""


def test_a_lost_limit_is_an_error_or_said_first(tmp_path: Path, called: Callable[..., Any]) -> None:
    config, folder = tmp_path / "a.yaml", tmp_path / "deploy"
    config.write_text(GUARDED)
    status, out, err = called("export", config, "--to", "llm-d", "--out", folder)
    assert (status, out) == (2, "")
    assert err == (
        "spillway: gateway.limit = token_budget: is lost with llm-d@0.10: llm-d limits by "
        "saturation only, with the feature gate flowControl; it carries saturation; allow_lossy "
        "exports the rest\n"
    )
    assert not folder.exists()
    status, out, _ = called("export", config, "--to", "llm-d", "--allow-lossy")
    assert status == 0
    assert out.startswith(
        "lost: gateway.limit (token_budget): llm-d limits by saturation only, with the feature "
        "gate flowControl; it carries saturation\n# --- "
    )
    status, _, err = called("export", config, "--to", "vllm")
    assert status == 2
    assert "not up to vllm; rest=kept, if something else deploys it; allow_lossy exports" in err
    status, out, _ = called("export", config, "--to", "vllm", "--rest", "kept")
    assert status == 0
    assert "lost:" not in out


def test_an_export_without_a_file_is_an_error(tmp_path: Path, called: Callable[..., Any]) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("schema: 1\n")
    status, out, err = called("export", config, "--to", "envoy", "--allow-lossy")
    assert (status, out) == (2, "")
    assert err.startswith("spillway: export to envoy@v3: would be empty: nothing of the simulation")


def test_a_limit_in_another_form_is_no_loss_of_a_guard(
    tmp_path: Path, printed: Callable[..., str]
) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("schema: 1\ngateway: {limit: {kind: fixed, max_in_flight: 24}}\n")
    found = json.loads(printed("export", config, "--to", "llm-d", "--json"))
    assert (found["lost_guards"], found["moved"]) == ([], ["gateway.limit"])
    assert "maxConcurrency: 24\n" in found["files"]["endpointpickerconfig.yaml"]


def test_patches_of_kubernetes_objects(tmp_path: Path, printed: Callable[..., str]) -> None:
    config, folder = tmp_path / "a.yaml", tmp_path / "deploy"
    config.write_text("schema: 1\n")
    printed("export", config, "--to", "vllm", "--patch", "kserve", "--out", folder)
    (path,) = folder.iterdir()
    assert path.name == "vllm-0.patch.yaml"
    assert "kind: InferenceService\n" in path.read_text()


def test_a_loss_is_priced(tmp_path: Path, called: Callable[..., Any]) -> None:
    config = tmp_path / "a.yaml"
    config.write_text(GUARDED)
    arguments = ("export", config, "--to", "vllm", "--allow-lossy", "--price", "2", "--json")
    status, out, _ = called(*arguments)
    assert status == 0
    found = json.loads(out)
    assert [loss["path"] for loss in found["lost_guards"]] == ["gateway.limit"]
    goodput, ttft = found["price"]["verdicts"]
    assert (goodput["figure"], ttft["figure"]) == ("goodput", "p99_ttft_ms")
    # So few tokens are far too few for this server: alone, it is better.
    assert (goodput["baseline"], goodput["challenger"]) == ("wanted", "deployed")
    assert goodput["after"] > goodput["before"]
    assert ttft["after"] < ttft["before"]
    status, _, err = called("export", config, "--to", "vllm", "--price", "0")
    assert status == 2
    assert "--price = 0: must be >= 2" in err


def test_describe_names_the_systems_that_carry_a_policy(called: Callable[..., Any]) -> None:
    ending = "\n\nCarried by (spillway export): {}\n"
    for path, known in (("saturation", "llm-d@0.8, llm-d@0.9, llm-d@0.10"), ("dual_limit", "none")):
        assert called("describe", f"gateway.limit.{path}")[1].endswith(ending.format(known))
    in_part = "llm-d@0.8, llm-d@0.9 (not scale), llm-d@0.10 (not scale)"
    path = "router.weighted.scorers.precise_prefix_cache"
    assert called("describe", path)[1].endswith(ending.format(in_part))
    assert "Carried by" not in called("describe", "gateway.limit")[1]
    assert "Carried by" not in called("describe", "gateway.limit.fixed.max_in_flight")[1]


STUDY = """\
schema: 1
simulation:
  workload: {kind: synthetic, requests_per_s: 20, num_requests: 60}
  slo_classes: [{name: standard, target_ttft_s: 1}]
  gateway: {admission: {kind: token_bucket}, limit: {kind: fixed, max_in_flight: 16}}
space:
  gateway.limit[0].max_in_flight: [4, 32]
  router: {choices: [round_robin, least_loaded]}
maximize: goodput
trials: 4
seeds: 2
confirm: false
"""


def test_optimize_says_what_is_left_out_and_writes_the_files(
    tmp_path: Path, called: Callable[..., Any]
) -> None:
    study, folder = tmp_path / "study.yaml", tmp_path / "out"
    study.write_text(STUDY)
    status, out, err = called(
        "optimize", study, "--target", "envoy", "--out", folder, "--json", "--threads", "1"
    )
    assert status == 0
    lines = [line.removeprefix("spillway: ") for line in err.splitlines()]
    assert lines[0].startswith("searched without: gateway.admission = token_bucket: Envoy has")
    assert lines[1] == "not searched: router = round_robin: not up to envoy"
    assert lines[2] == "not searched: router = least_loaded: not up to envoy"
    limit = json.loads(out)["best"]["point"]["gateway.limit[0].max_in_flight"]
    text = (folder / "deploy" / "circuit_breakers.yaml").read_text()
    assert f"max_requests: {round(limit)}\n" in text
    # The study in the folder is the one that was searched: it goes on with the same trials.
    assert "token_bucket" not in (folder / "study.yaml").read_text()
    status, _, err = called("optimize", study, "--target", "envoy", "--out", folder)
    assert (status, "resumes the study after 4 trials" in err) == (0, True)


def test_a_brief_file_is_the_whole_simulation(tmp_path: Path) -> None:
    simulation = Simulation().with_({"gateway.limit": "fixed", "tenants": [{"name": "default"}]})
    path = tmp_path / "a.yaml"
    dump(simulation, path, brief=True)
    assert load(path) == simulation
    assert set(read_settings(path)) == {"schema", "gateway", "tenants"}
    assert set(read_settings(path)["gateway"]) == {"limit"}
    dump(Simulation(), path, brief=True)
    assert path.read_text() == "schema: 1\n"

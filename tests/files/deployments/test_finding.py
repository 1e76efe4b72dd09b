"""What real files hold is found in every shape, and nothing in them is lost without a word."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.deployed_files import DEPLOYED, Deployed, dumped, manifest
from support.deployments import refused, written
from support.effort import trials
from support.readers import changed_at, places_of

from spillway import ConfigError, Simulation
from spillway.files.deployments import Import, import_

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

each = pytest.mark.parametrize("deployed", DEPLOYED, ids=lambda deployed: deployed.name)


def imported(folder: Path, files: Mapping[str, str], system: str | None, **options: Any) -> Import:
    folder.mkdir(exist_ok=True)
    paths = [folder / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_text(content)
    return import_(paths, system=system, **options)


def value_at(simulation: Simulation, path: str) -> Any:
    found: Any = simulation.to_dict()
    for name in path.replace("[", ".").replace("]", "").split("."):
        found = found[int(name) if name.isdigit() else name]
    return found


def test_there_are_enough_files() -> None:
    assert len(DEPLOYED) >= 100
    assert len({deployed.name for deployed in DEPLOYED}) == len(DEPLOYED)


@each
def test_settings_are_read_from_every_shape(deployed: Deployed, tmp_path: Path) -> None:
    found = imported(tmp_path, deployed.files, deployed.system)
    states = {path: value_at(found.simulation, path) for path in deployed.states}
    assert states == deployed.states
    assert "hf_abcdefgh" not in repr(found)


@each
def test_the_system_is_recognized(deployed: Deployed, tmp_path: Path) -> None:
    if deployed.name in ("vllm flags", "dynamo environment"):
        pytest.skip("flags and variables alone may be of any program")
    found = imported(tmp_path, deployed.files, None)
    assert found.simulation == imported(tmp_path, deployed.files, deployed.system).simulation


# --- nothing is lost without a word ---------------------------------------------------------------


def outcome(folder: Path, files: Mapping[str, str], system: str) -> Any:
    """All that an import says: settings, fields, notes; or why it is refused."""
    try:
        found = imported(folder, files, system, allow_lossy=True)
    except ConfigError as error:
        return str(error)
    listed = sorted(str(entry) for entry in (*found.unread, *found.irrelevant))
    return found.simulation, listed, sorted(found.notes)


def without(content: Any, place: Any) -> Any:
    """A document without a key or an entry."""
    content = copy.deepcopy(content)
    *above, last = place
    holder = content
    for key in above:
        holder = holder[key]
    del holder[last]
    return content


def renamed(content: Any, place: Any) -> Any:
    """A document in which the name of a key is another one."""
    content = copy.deepcopy(content)
    *above, last = place
    holder = content
    for key in above:
        holder = holder[key]
    items = list(holder.items())
    holder.clear()
    holder.update({f"{key}Renamed" if key == last else key: value for key, value in items})
    return content


def reordered(content: Any) -> Any:
    """A document with its keys in another order."""
    if isinstance(content, dict):
        return {key: reordered(content[key]) for key in reversed(list(content))}
    return [reordered(entry) for entry in content] if isinstance(content, list) else content


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


# The fields of llm-d's documents are up to the reader of llm-d.
MANIFESTS = [
    deployed
    for deployed in DEPLOYED
    if deployed.system != "llm-d" and all(name.endswith(("yaml", "yml")) for name in deployed.files)
]
SCRIPTS = [
    deployed
    for deployed in DEPLOYED
    if deployed.system != "llm-d" and {"a.sh", "start.sh"} & deployed.files.keys()
]
# What is masked; and what the reader of a document does not look at.
BLIND = {"HF_TOKEN", "hf_token", "apiVersion"}


def changes(content: Any, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """A document with another value, without a key, and with a key of another name."""
    places = [place for place in places_of(content) if place and place[-1] not in BLIND]
    leaves = [place for place in places if not isinstance(at(content, place), dict | list)]
    place = rng.choice(leaves)
    yield f"changed {place}", changed_at(content, place, another)
    # A model may be a word or the value of a flag; and documents are found below any key.
    keys = [place for place in places if isinstance(place[-1], str)]
    place = rng.choice([place for place in keys if at(content, place) != 1])  # the default
    yield f"dropped {place}", without(content, place)
    place = rng.choice([place for place in leaves if isinstance(place[-1], str)])
    yield f"renamed {place}", renamed(content, place)


def at(content: Any, place: Any) -> Any:
    for key in place:
        content = content[key]
    return content


def another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}x" if isinstance(value, str) else "other"


@pytest.mark.parametrize("deployed", MANIFESTS, ids=lambda deployed: deployed.name)
def test_no_key_of_a_manifest_is_without_effect(deployed: Deployed, tmp_path: Path) -> None:
    """Whatever is dropped, renamed or has another value changes what an import says."""
    file = sorted(deployed.files, key=lambda name: name.startswith("serve"))[0]
    before = outcome(tmp_path, deployed.files, deployed.system)
    contents = documents(deployed.files[file])
    rng = random.Random(deployed.name)
    for _ in trials(36):
        i = rng.randrange(len(contents))
        for what, changed in changes(contents[i], rng):
            if deployed.system == "envoy" and not what.startswith("changed"):
                continue  # its filters are found below any key
            if deployed.name == "litellm config_map" and "renamed ('data', '" in what:
                continue  # an entry of a ConfigMap is known by its content
            text = dumped(*contents[:i], changed, *contents[i + 1 :])
            after = outcome(tmp_path, {**deployed.files, file: text}, deployed.system)
            assert after != before, what


@pytest.mark.parametrize("deployed", MANIFESTS, ids=lambda deployed: deployed.name)
def test_the_order_of_keys_means_nothing(deployed: Deployed, tmp_path: Path) -> None:
    files = {
        name: dumped(*map(reordered, documents(text))) for name, text in deployed.files.items()
    }
    before = imported(tmp_path, deployed.files, deployed.system)
    after = imported(tmp_path, files, deployed.system)
    assert after.simulation == before.simulation
    assert len(after.unread) == len(before.unread)


@pytest.mark.parametrize("deployed", SCRIPTS, ids=lambda deployed: deployed.name)
def test_no_word_of_a_script_is_without_effect(deployed: Deployed, tmp_path: Path) -> None:
    (file,) = (name for name in deployed.files if name.endswith(".sh"))
    before = outcome(tmp_path, deployed.files, deployed.system)
    text = deployed.files[file].replace("hf_abcdefgh", "secret")
    words = text.split(" ")
    rng = random.Random(deployed.name)
    for _ in trials(60):
        i = rng.randrange(len(words))
        is_word = any(map(str.isalnum, words[i])) and ">" not in words[i]
        if not is_word or "#" in words[i] or "secret" in words[i]:
            continue
        position = max(k for k, letter in enumerate(words[i]) if letter.isalnum())
        changed = f"{words[i][:position]}{words[i][position]}7{words[i][position + 1 :]}"
        text = " ".join([*words[:i], changed, *words[i + 1 :]])
        after = outcome(tmp_path, {**deployed.files, file: text}, deployed.system)
        assert after != before, changed


# --- what is refused ------------------------------------------------------------------------------


def test_a_template_is_to_be_rendered(tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text("replicas: {{ .Values.replicas }}\nargs: {{ toYaml .Values.args }}\n")
    assert "render it, as `helm template` does" in refused(path)


def test_files_without_anything_known_are_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("It's about vLLM.\n")
    (tmp_path / "a.yaml").write_text("kind: Service\n")
    message = refused(tmp_path)
    assert "README.md" in message
    assert "a.yaml: nothing in it is known" in message


def test_engines_side_by_side_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("vllm serve m\n")
    (tmp_path / "b.sh").write_text("sglang serve --model-path m\n")
    assert "must be one of sglang, vllm" in refused(tmp_path)
    found = import_(tmp_path, system="vllm")
    assert any("is of sglang" in str(unread) for unread in found.unread)


def test_a_gateway_and_engines_are_read_together(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for deployed in DEPLOYED:
        if deployed.name in ("vllm serve deployment", "llm-d config_map"):
            files |= deployed.files
    found = imported(tmp_path, files, None)
    assert found.simulation.instances[0].max_num_seqs == 64
    assert found.simulation.instances[0].count == 3
    assert value_at(found.simulation, "router.scorers[0].kind") == "queue_depth"


PREFILL = {"labels": {"llm-d.ai/role": "prefill"}}
VLLM = ["vllm", "serve", "Qwen/Qwen3-8B"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--speculative-config", '{"method": "medusa", "num_speculative_tokens": 4}'],
            "speculative decoding by medusa",
        ),
        (["--speculative-config.method", "eagle"], "without num_speculative_tokens"),
        (["--enable-lora", "--lora-modules", "a=b", "c=d"], "LoRA"),
        (["-pp", "2"], "pipeline"),
        (
            ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'],
            "transfers",
        ),
        (["--config", "/etc/other.yaml"], "is not among the files"),
        (["-dcp", "2"], "context parallelism"),
    ],
)
def test_what_works_in_another_way_is_refused(
    words: list[str], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(dumped(manifest("Deployment", {"command": VLLM, "args": words})))
    message = refused(path, system="vllm")
    assert reason in message
    assert "--allow-lossy" in message
    found = import_(path, system="vllm", allow_lossy=True)
    assert any(reason in unread.reason for unread in found.unread)


def test_roles_are_those_of_labels_and_sections(tmp_path: Path) -> None:
    document = manifest("Deployment", {"command": VLLM})
    document["spec"]["template"]["metadata"] = PREFILL
    path = tmp_path / "a.yaml"
    path.write_text(dumped(document))
    assert "must hold a group with role: decode" in refused(path)
    values = {"decode": {"containers": [{"command": VLLM}]}}
    path.write_text(dumped(values))
    assert import_(path).simulation.instances[0].role == "both"
    values["prefill"] = copy.deepcopy(values["decode"])
    path.write_text(dumped(values))
    found = import_(path)
    assert [group.role for group in found.simulation.instances] == ["decode", "prefill"]
    (note,) = (note for note in found.notes if note.startswith("disaggregation"))
    assert note.endswith("no file states the router of both pools: prefill_first, decider always")


def test_aliases_do_not_grow(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    path = tmp_path / "a.yaml"
    path.write_text("\n".join(lines))
    assert "too large" in refused(path)


IMAGE = "vllm/vllm-openai:v0.19.1"
FLAGS = ["--max-num-seqs=64"]


@pytest.mark.parametrize(
    ("container", "note"),
    [
        ({"image": IMAGE, "args": ["--model", "m", *FLAGS]}, "read as 0.19"),
        ({"image": "ghcr.io/llm-d/llm-d-cuda:v0.6.0", "args": ["m", *FLAGS]}, ""),
        ({"name": "modelserver", "args": FLAGS}, "is taken for vllm serve"),
        ({"image": "private/server:1", "name": "vllm", "args": FLAGS}, "is taken for vllm serve"),
    ],
)
def test_programs_that_no_word_names(tmp_path: Path, container: dict[str, Any], note: str) -> None:
    files = {"a.yaml": dumped(manifest("Deployment", container))}
    found = imported(tmp_path, files, "vllm")
    assert found.simulation.instances[0].max_num_seqs == 64
    assert note in str(found.notes)


@pytest.mark.parametrize(
    "container",
    [
        {"image": IMAGE, "command": ["sleep", "infinity"]},
        {"image": IMAGE, "command": ["python3", "bench.py"], "args": ["--max-num-seqs", "64"]},
        {"image": "lmcache/vllm-router:1", "args": ["--port", "80"]},
        {"image": "private/server:1", "args": FLAGS},
    ],
)
def test_other_programs_are_not_taken_for_a_server(
    tmp_path: Path, container: dict[str, Any]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(dumped(manifest("Deployment", container)))
    assert "nothing in it is known" in refused(path, system="vllm")


def test_what_a_script_does_several_times_is_listed(tmp_path: Path) -> None:
    text = "for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i vllm serve m --port $((8000 + i)) &\ndone\n"
    found = imported(tmp_path, {"a.sh": text}, "vllm")
    assert any("is gone through once" in unread.reason for unread in found.unread)
    assert [entry.value for entry in found.irrelevant] == ["$((8000 + i))", "$i"]


SERVICE = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  replicas: 2
  model: {uri: hf://Qwen/Qwen3-8B}
  parallelism: {tensor: 2, data: 4, dataLocal: 4}
  router:
    scheduler:
      config:
        inline:
          apiVersion: llm-d.ai/v1alpha1
          kind: EndpointPickerConfig
          plugins: [{type: queue-scorer}, {type: max-score-picker}]
          schedulingProfiles:
          - {name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}
      template:
        containers: [{name: main, args: [--v=4]}]
"""


def test_a_service_holds_a_gateway_and_servers(tmp_path: Path) -> None:
    found = imported(tmp_path, {"a.yaml": SERVICE}, None)
    (group,) = found.simulation.instances
    assert (group.count, group.data_parallel_size) == (2, 4)
    assert value_at(found.simulation, "router.scorers[0].kind") == "queue_depth"
    listed = {entry.field.rpartition(": ")[2] for entry in found.unread}
    assert listed == {"model", "tensor-parallel-size", "template"}


def test_a_service_with_prefill_workers_has_two_pools(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    plain = SERVICE.replace(", data: 4, dataLocal: 4", "")
    path.write_text(plain + "  prefill: {replicas: 3, parallelism: {tensor: 1}}\n")
    found = import_(path)
    roles = {group.role: group.count for group in found.simulation.instances}
    assert roles == {"prefill": 3, "decode": 2}
    path.write_text(SERVICE + "  prefill: {replicas: 0}\n")
    found = import_(path)
    assert any("is not created" in entry.reason for entry in found.irrelevant)


def test_the_routes_of_istio_are_named(tmp_path: Path) -> None:
    text = """
kind: VirtualService
spec: {http: [{timeout: 10s, retries: {attempts: 3}, route: [{destination: {host: llama}}]}]}
---
kind: Deployment
spec: {template: {spec: {containers: [{name: a, command: [vllm, serve, m]}]}}}
"""
    found = import_(written(tmp_path, a__yaml=text))
    (entry,) = (entry for entry in found.unread if "VirtualService" in entry.field)
    assert entry.value == {"spec.http[0].timeout": "10s", "spec.http[0].retries": {"attempts": 3}}
    assert "reaction" in entry.reason
    plain = text.replace("timeout: 10s, retries: {attempts: 3}, ", "")
    routed = import_(written(tmp_path, a__yaml=plain))
    assert not any("VirtualService" in entry.field for entry in routed.unread)


def test_what_no_file_decides_is_named(tmp_path: Path) -> None:
    found = import_(written(tmp_path, a__sh="vllm serve m --max-num-seqs 4"))
    assert found.undecided == (
        "gateway.admission (always_admit)",
        "gateway.limit (unlimited)",
        "router (round_robin)",
    )


@pytest.mark.parametrize("image", ["docker.io/istio/proxyv2:1.24.0", "auto", "envoyproxy/envoy:v1"])
def test_the_pods_of_a_proxy_are_said_to_count_alone(tmp_path: Path, image: str) -> None:
    text = f"""\
kind: Deployment
metadata: {{name: entry}}
spec:
  replicas: 3
  template: {{spec: {{containers: [{{name: proxy, image: "{image}"}}]}}}}
---
kind: DestinationRule
spec: {{trafficPolicy: {{connectionPool: {{http: {{http2MaxRequests: 200}}}}}}}}
"""
    found = import_(written(tmp_path, stack__yaml=text), system="envoy")
    (entry,) = (entry for entry in found.unread if "Deployment" in entry.field)
    assert entry.reason.endswith("state them as gateway.replicas")
    assert entry.value["spec"]["replicas"] == 3


SCALES = "scales the servers: state it as fleet.autoscaler in --onto"
ROUTES = "routes by ROUTING_ALGORITHM: state it as router in --onto"
PLUGIN = """
kind: Deployment
spec:
  template:
    spec:
      containers:
      - {name: plugin, image: aibrix/plugins, env: [{name: ROUTING_ALGORITHM, value: random}]}
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kind: PodAutoscaler\nspec: {scalingStrategy: KPA}", SCALES),
        ("kind: ScaledObject\nspec: {maxReplicaCount: 4}", SCALES),
        (PLUGIN, ROUTES),
    ],
)
def test_what_else_decides_is_named(tmp_path: Path, text: str, reason: str) -> None:
    found = import_(written(tmp_path, a__yaml=text, b__sh="vllm serve m"))
    (entry,) = (entry for entry in found.unread if "a.yaml" in entry.field)
    assert entry.reason == reason


def test_three_hyphens_in_a_text_begin_no_document(tmp_path: Path) -> None:
    hyphens = "|\n    a\n    ---\n    b\n"
    envoy = f"""\
http_filters:
- name: lua
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
    inline_code: {hyphens.replace(" " * 4, " " * 6)}
clusters:
- circuit_breakers: {{thresholds: [{{max_requests: 7, max_connections: 99}}]}}
"""
    read = import_(written(tmp_path, envoy__yaml=envoy), system="envoy").simulation
    assert read.gateway.limit[0].max_in_flight == 7
    picker = f"""\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: openai-parser
  parameters:
    a: {hyphens.replace(" " * 4, " " * 6)}
- type: queue-scorer
"""
    found = import_(written(tmp_path, epp__yaml=picker), system="llm-d").simulation
    assert [scorer.kind for scorer in found.router.scorers] == ["queue_depth"]

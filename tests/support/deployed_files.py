"""Files as people deploy them: each engine in each shape, and what only one system has."""

from __future__ import annotations

import json
import shlex
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Deployed(NamedTuple):
    """Files by name, the system that they are of, and settings that they state, by path."""

    name: str
    system: str
    files: Mapping[str, str]
    states: Mapping[str, Any]
    irrelevant: tuple[str, ...] = ()


GROUP = "instances[0]"
LIMITS = {f"{GROUP}.max_num_seqs": 64, f"{GROUP}.max_model_len": 16384}

ENGINES: Mapping[str, tuple[str, Sequence[str]]] = {
    "vllm serve": (
        "vllm",
        ["vllm", "serve", "Qwen/Qwen3-8B", "--max-num-seqs=64", "--max-model-len", "16384"],
    ),
    "api_server": (
        "vllm",
        [
            *("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen3-8B"),
            *("--max_num_seqs", "64", "--max-model-len", "16K", "--port", "8000"),
        ],
    ),
    "sglang": (
        "sglang",
        [
            *("python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B"),
            *("--max-running-requests", "64", "--context-length=16384", "--host", "0.0.0.0"),
        ],
    ),
    "trtllm": (
        "tensorrt-llm",
        ["trtllm-serve", "Qwen/Qwen3-8B", "--max_batch_size", "64", "--max_seq_len", "16384"],
    ),
}


def dumped(*documents: Any) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def pod(container: Mapping[str, Any]) -> dict[str, Any]:
    rest = {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    named = {"name": "server", "ports": [{"containerPort": 8000}], **container}
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [named], **rest}}


def manifest(kind: str, container: Mapping[str, Any], api: str = "apps/v1") -> dict[str, Any]:
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "llm", "namespace": "serving"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "llm"}},
            "template": pod(container),
        },
    }


def script(words: Sequence[str]) -> str:
    return f"#!/bin/bash\nset -euo pipefail\necho starting\nexec {shlex.join(words)}\n"


def continued(words: Sequence[str]) -> str:
    head, tail = words[:3], words[3:]
    lines = [f'export HF_TOKEN="hf_abcdefgh"\n{shlex.join(head)}', *tail]
    return " \\\n  ".join(lines) + " 2>&1 | tee server.log &\nwait\n"


def with_variables(words: Sequence[str]) -> str:
    texts = ["${SEATS}" if word == "64" else word.replace("=64", "=${SEATS}") for word in words]
    texts = ["$MODEL_NAME" if word == "Qwen/Qwen3-8B" else word for word in texts]
    lines = "\n".join(f"  {text}" for text in texts)
    head = "MODEL_NAME=${MODEL_NAME:-Qwen/Qwen3-8B}\nSEATS=64\n"
    return f'{head}ARGS=(\n{lines}\n)\nnohup "${{ARGS[@]}}" > log.txt &\n'


def service(kind: str = "Service") -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], "selector": {"app": "llm"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "llm"}, "spec": spec}


def with_config_map(words: Sequence[str]) -> str:
    data = {"SEATS": "64", "LOG_LEVEL": "info"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    args = [
        word.replace("64", "$(SEATS)") if word in ("64", "--max-num-seqs=64") else word
        for word in words
    ]
    source = {"envFrom": [{"configMapRef": {"name": "c"}}]}
    return dumped(config, manifest("Deployment", {"args": args, **source}))


def leader_workers(words: Sequence[str]) -> str:
    sizes = {"size": 2, "leaderTemplate": pod({"command": list(words)})}
    template = {**sizes, "workerTemplate": pod({"command": ["sh", "-c", "ray start --block"]})}
    return dumped(
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "llm"},
            "spec": {"replicas": 3, "leaderWorkerTemplate": template},
        }
    )


def compose(command: Any) -> str:
    server = {
        "image": "registry.example/llm:latest",
        "command": command,
        "environment": {"HF_TOKEN": "${HF_TOKEN}", "NCCL_DEBUG": "INFO"},
        "ports": ["8000:8000"],
        "deploy": {"replicas": 3, "resources": {"reservations": {"devices": [{"count": 1}]}}},
    }
    return dumped({"services": {"llm": server, "redis": {"image": "redis:7"}}})


def storm_service(words: Sequence[str]) -> str:
    roles = [{"name": "worker", "replicas": 3, "template": pod({"command": list(words)})}]
    return dumped(
        {
            "apiVersion": "orchestration.aibrix.ai/v1alpha1",
            "kind": "StormService",
            "metadata": {"name": "llm"},
            "spec": {"replicas": 1, "template": {"spec": {"roles": roles}}},
        }
    )


def docker(words: Sequence[str]) -> str:
    options = "--rm --gpus all --ipc=host -p 8000:8000 -v ./cache:/cache -e HF_TOKEN=hf_abcdefgh"
    return f"docker run {options} --name llm registry.example/llm:1 \\\n  {shlex.join(words)}\n"


def kubectl(words: Sequence[str]) -> str:
    return (
        f"kubectl apply -f - <<EOF\n{dumped(manifest('Deployment', {'command': list(words)}))}EOF\n"
    )


def runtime(words: Sequence[str]) -> str:
    containers = [{"name": "kserve-container", "image": "llm:1", "command": list(words)}]
    return dumped(
        {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": "ServingRuntime",
            "metadata": {"name": "llm"},
            "spec": {"containers": containers, "supportedModelFormats": [{"name": "llm"}]},
        }
    )


def config_script(words: Sequence[str]) -> str:
    data = {"start.sh": f"#!/bin/sh\n{shlex.join(words)}\n"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    return dumped(config, service())


def of_list(words: Sequence[str]) -> str:
    items = [service(), manifest("Deployment", {"command": list(words)})]
    return dumped({"apiVersion": "v1", "kind": "List", "items": items})


def aliased(words: Sequence[str]) -> str:
    text = dumped({"services": {"llm": {"command": list(words)}}})
    common = "x-common: &common\n  restart: always\n"
    return common + text.replace("  llm:\n", "  llm:\n    <<: *common\n")


SHAPES: Mapping[str, tuple[str, Callable[[Sequence[str]], str], int]] = {
    "script": ("start.sh", script, 1),
    "continued": ("start.sh", continued, 1),
    "variables": ("start.sh", with_variables, 1),
    "inner": ("start.sh", lambda words: f"bash -lc {shlex.quote(shlex.join(words))}\n", 1),
    "docker": ("run.sh", docker, 1),
    "kubectl": ("apply.sh", kubectl, 3),
    "no_ending": ("launch", script, 1),
    "compose": ("compose.yaml", lambda words: compose(list(words)), 3),
    "compose_text": ("docker-compose.yml", lambda words: compose(shlex.join(words)), 3),
    "aliases": ("compose.yaml", aliased, 1),
    "deployment": (
        "deploy.yaml",
        lambda words: dumped(manifest("Deployment", {"command": words[:2], "args": words[2:]})),
        3,
    ),
    "stateful_set": (
        "set.yaml",
        lambda words: dumped(service(), manifest("StatefulSet", {"args": list(words)})),
        3,
    ),
    "shell": (
        "deploy.yaml",
        lambda words: dumped(
            manifest("Deployment", {"command": ["/bin/sh", "-c"], "args": [continued(words)]})
        ),
        3,
    ),
    "config_map": ("deploy.yaml", with_config_map, 3),
    "config_script": ("config.yaml", config_script, 1),
    "leader_workers": ("lws.yaml", leader_workers, 3),
    "storm_service": ("storm.yaml", storm_service, 3),
    "serving_runtime": ("runtime.yaml", runtime, 1),
    "list": ("all.yaml", of_list, 3),
    "json": (
        "deploy.json",
        lambda words: json.dumps(manifest("Deployment", {"command": list(words)})),
        3,
    ),
    "pod": (
        "pod.yaml",
        lambda words: dumped({"apiVersion": "v1", "kind": "Pod", **pod({"command": list(words)})}),
        1,
    ),
}


def of_engines() -> list[Deployed]:
    return [
        Deployed(
            f"{engine} {shape}",
            system,
            {file: write(list(words))},
            {**LIMITS, f"{GROUP}.count": count},
        )
        for engine, (system, words) in ENGINES.items()
        for shape, (file, write, count) in SHAPES.items()
    ]


# --- what only one system has ---------------------------------------------------------------------


def text(value: str) -> str:
    return textwrap.dedent(value)


PICKER = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: max-score-picker}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: max-score-picker}
"""
QUEUE_SCORER = {"router.scorers[0].kind": "queue_depth"}
FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
FILTER = f"""\
"@type": {FILTERS}.adaptive_concurrency.v3.AdaptiveConcurrency
gradient_controller_config:
  sample_aggregate_percentile: {{value: 90}}
  concurrency_limit_params: {{concurrency_update_interval: 0.1s}}
  min_rtt_calc_params: {{interval: 30s, request_count: 25}}
"""
GRADIENT = {"gateway.controller.percentile": 90.0, "gateway.controller.request_count": 25}


def of_picker() -> list[Deployed]:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "epp"}}
    argument = manifest("Deployment", {"image": "epp:1", "args": ["--config-text", PICKER]})
    custom = {"pluginsConfigFile": "custom.yaml", "pluginsCustomConfig": {"custom.yaml": PICKER}}
    files = {
        "plain": PICKER,
        "config_map": dumped(service(), {**config, "data": {"epp.yaml": PICKER}}),
        "argument": dumped(argument),
        "values": dumped({"inferenceExtension": {"replicas": 1, **custom}}),
        "nested_values": dumped({"router": {"epp": {"pluginsCustomConfig": {"p.yaml": PICKER}}}}),
        "heredoc": f"cat > epp.yaml <<'EOF'\n{PICKER}EOF\nkubectl apply -f epp.yaml\n",
    }
    return [
        Deployed(
            f"llm-d {name}",
            "llm-d",
            {"a.sh" if name == "heredoc" else "a.yaml": content},
            QUEUE_SCORER,
        )
        for name, content in files.items()
    ]


def of_envoy() -> list[Deployed]:
    config = yaml.safe_load(FILTER)
    kind = config.pop("@type")
    structs = {
        name: {"@type": f"type.googleapis.com/{name}", "type_url": kind, "value": config}
        for name in ("udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct")
    }
    plain = {"@type": kind, **config}
    patches = {
        name: {
            "apiVersion": "networking.istio.io/v1alpha3",
            "kind": "EnvoyFilter",
            "metadata": {"name": "limit"},
            "spec": {
                "configPatches": [
                    {
                        "applyTo": "HTTP_FILTER",
                        "patch": {"operation": "INSERT_BEFORE", "value": {"typed_config": struct}},
                    }
                ]
            },
        }
        for name, struct in {**structs, "plain": plain}.items()
    }
    clusters = [{"name": "llm", "circuit_breakers": {"thresholds": [{"max_requests": 50}]}}]
    bootstrap = {
        "static_resources": {
            "listeners": [
                {"filter_chains": [{"filters": [{"http_filters": [{"typed_config": plain}]}]}]}
            ],
            "clusters": clusters,
        }
    }
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "envoy"},
        "data": {"envoy.yaml": dumped(bootstrap)},
    }
    files = {**{f"istio {name}": dumped(patch) for name, patch in patches.items()}}
    files |= {"bootstrap": dumped(bootstrap), "config_map": dumped(config_map, service())}
    files |= {"two documents": dumped(service(), patches["plain"])}
    return [
        Deployed(f"envoy {name}", "envoy", {"envoy.yaml": content}, GRADIENT)
        for name, content in files.items()
    ]


def of_keys() -> list[Deployed]:
    """Keys of gateways, and an autoscaler."""
    users = [{"name": "default", "rpm": 30, "tpm": 9000}]
    keys = [{"key_alias": "default", "rpm_limit": 30, "max_parallel_requests": 4}]
    rate = {"gateway.admission[0].max_requests": 30}
    step = {"type": "Pods", "value": 2, "periodSeconds": 15}
    target = {"type": "AverageValue", "averageValue": 4}
    waiting = {"metric": {"name": "vllm:num_requests_waiting"}, "target": target}
    scaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llm"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
            "minReplicas": 2,
            "maxReplicas": 6,
            "metrics": [{"type": "Pods", "pods": waiting}],
            "behavior": {"scaleUp": {"stabilizationWindowSeconds": 30, "policies": [step]}},
        },
    }
    scales = {"fleet.autoscaler.max_instances": 6, "fleet.autoscaler.up_share": 0.0}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "keys"},
        "data": {"keys.json": json.dumps(keys, indent=1)},
    }
    return [
        Deployed("aibrix users", "aibrix", {"users.yaml": dumped(users)}, rate),
        Deployed("litellm keys", "litellm", {"keys.yaml": dumped(keys)}, rate),
        Deployed("litellm config_map", "litellm", {"keys.yaml": dumped(config_map)}, rate),
        Deployed("kubernetes scaler", "kubernetes", {"a.yaml": dumped(scaler)}, scales),
        Deployed("kubernetes two", "kubernetes", {"a.yaml": dumped(service(), scaler)}, scales),
    ]


KV = {
    "router.kind": "kv_cost",
    "router.request_weight": 0.5,
    "gateway.admission[0].kind": "busy_threshold",
    "busy_monitor.active_decode_blocks_threshold": 0.85,
}
VARIABLES = {
    "DYN_ROUTER_MODE": "kv",
    "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT": "0.5",
    "DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD": "0.85",
}
ROUTER_FLAGS = [
    *("--router-mode", "kv", "--router-decode-active-request-weight", "0.5"),
    "--active-decode-blocks-threshold=0.85",
]


def graph(version: str, *, is_environment: bool) -> str:
    """A graph of Dynamo with a frontend and workers of vLLM."""
    entries = [{"name": name, "value": value} for name, value in VARIABLES.items()]
    worker = ["--model", "Qwen/Qwen3-8B", "--max-num-seqs", "64", "--max-model-len", "16384"]
    frontend: dict[str, Any] = {"image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1"}
    if not is_environment:
        frontend |= {"command": ["python3", "-m", "dynamo.frontend"], "args": ROUTER_FLAGS}
    engine = {"command": ["python3", "-m", "dynamo.vllm"], "args": worker}
    if version == "v1alpha1":
        first = {"envs": entries} if is_environment else {}
        spec: dict[str, Any] = {
            "services": {
                "Frontend": {
                    "componentType": "frontend",
                    "replicas": 1,
                    **first,
                    "extraPodSpec": {"mainContainer": frontend},
                },
                "VllmWorker": {
                    "componentType": "worker",
                    "replicas": 3,
                    "extraPodSpec": {"mainContainer": engine},
                },
            }
        }
    else:
        frontend |= {"env": entries} if is_environment else {}
        spec = {
            "components": [
                {"name": "Frontend", "type": "frontend", "podTemplate": pod(frontend)},
                {"name": "Worker", "type": "worker", "replicas": 3, "podTemplate": pod(engine)},
            ]
        }
    return dumped(
        {
            "apiVersion": f"nvidia.com/{version}",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": "graph"},
            "spec": spec,
        }
    )


def of_dynamo() -> list[Deployed]:
    exports = "".join(f"export {name}={value}\n" for name, value in VARIABLES.items())
    assigned = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    plain = "".join(f"{name}={value}\n" for name, value in VARIABLES.items())
    frontend = {"command": ["python3", "-m", "dynamo.frontend"]}
    entries = [{"name": name, "value": value} for name, value in VARIABLES.items()]
    service_ = {
        "image": "dynamo:1",
        "command": "python -m dynamo.frontend",
        "environment": VARIABLES,
    }
    files = {
        "flags": {"a.sh": f"python -m dynamo.frontend {shlex.join(ROUTER_FLAGS)}\n"},
        "exports": {"a.sh": f"{exports}python -m dynamo.frontend --http-port 8000\n"},
        "assigned": {"a.sh": f"{assigned} python3 -m dynamo.frontend\n"},
        "environment": {"frontend.env": plain},
        "compose": {"compose.yaml": dumped({"services": {"frontend": service_}})},
        "env_file": {
            "frontend.env": plain,
            "compose.yaml": dumped(
                {"services": {"f": {**frontend, "image": "dynamo:1", "env_file": "frontend.env"}}}
            ),
        },
        "docker": {
            "frontend.env": plain,
            "a.sh": "docker run --env-file frontend.env dynamo:1 python -m dynamo.frontend\n",
        },
        "deployment": {"a.yaml": dumped(manifest("Deployment", {**frontend, "env": entries}))},
    }
    workers = {**KV, **LIMITS, f"{GROUP}.count": 3}
    graphs = [
        Deployed(
            f"dynamo graph {version} {'environment' if is_environment else 'flags'}",
            "dynamo",
            {"graph.yaml": graph(version, is_environment=is_environment)},
            workers,
        )
        for version in ("v1alpha1", "v1beta1")
        for is_environment in (True, False)
    ]
    return [
        *(Deployed(f"dynamo {name}", "dynamo", found, KV) for name, found in files.items()),
        *graphs,
    ]


def of_charts() -> list[Deployed]:
    model_service = """\
        modelArtifacts: {uri: hf://Qwen/Qwen3-8B, size: 20Gi}
        routing: {servicePort: 8000}
        decode:
          create: true
          replicas: 3
          parallelism: {tensor: 2}
          containers:
          - name: vllm
            image: vllm/vllm-openai:v0.19.1
            modelCommand: COMMAND
            args: [--max-num-seqs=64, --max-model-len=16384]
            resources: {limits: {nvidia.com/gpu: 2}}
        prefill: {create: false}
        """
    stack = """\
        servingEngineSpec:
          runtimeClassName: ""
          modelSpec:
          - name: llama
            repository: vllm/vllm-openai
            tag: v0.19.1
            modelURL: Qwen/Qwen3-8B
            replicaCount: 3
            requestGPU: 1
            pvcStorage: 50Gi
            vllmConfig: {maxNumSeqs: 64, enablePrefixCaching: false, v1: 1, EXTRA}
            hf_token: hf_abcdefgh
        routerSpec: {routingLogic: roundrobin, replicaCount: 1}
        """
    kserve = """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: qwen}
        spec:
          predictor:
            minReplicas: 3
            model:
              modelFormat: {name: huggingface}
              args:
              - --model_name=qwen
              - --model_id=Qwen/Qwen3-8B
              - --max_num_seqs=64
              - --max-model-len=16384
              resources: {limits: {nvidia.com/gpu: 1}}
        """
    llm_service = """\
        apiVersion: serving.kserve.io/v1alpha1
        kind: LLMInferenceService
        metadata: {name: qwen}
        spec:
          replicas: 3
          model: {uri: hf://Qwen/Qwen3-8B, name: qwen}
          parallelism: {tensor: 2}
          router: {route: {}, gateway: {}}
          template:
            containers:
            - name: main
              CONTAINER
        """
    arguments = (
        'env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 64 --max-model-len 16384"}]'
    )
    arguments += "\n      resources: {limits: {nvidia.com/gpu: 2}}"
    flags = "args: [--max-num-seqs=64, --max-model-len=16384]"
    states = {**LIMITS, f"{GROUP}.count": 3}
    config = "model: Qwen/Qwen3-8B\nmax-num-seqs: 64\nmax_model_len: 16K\n"
    config += "no-enable-prefix-caching: true\n"
    named = {
        "serve.sh": "vllm serve --config /etc/vllm/serve.yaml --port 80\n",
        "serve.yaml": config,
    }
    uncached = {**LIMITS, f"{GROUP}.kv_cache.prefix_caching": False}
    files: dict[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {
        "model service": ({"v.yaml": text(model_service).replace("COMMAND", "vllmServe")}, states),
        "model service image": (
            {"v.yaml": text(model_service).replace("COMMAND", "imageDefault")},
            states,
        ),
        "production stack": (
            {"v.yaml": text(stack).replace("EXTRA", 'extraArgs: ["--max-model-len", 16384]')},
            {**states, f"{GROUP}.kv_cache.prefix_caching": False},
        ),
        "production stack length": (
            {"v.yaml": text(stack).replace("EXTRA", "maxModelLen: 16384")},
            states,
        ),
        "inference service": ({"isvc.yaml": text(kserve)}, states),
        "llm service": ({"l.yaml": text(llm_service).replace("CONTAINER", flags)}, states),
        "llm service variable": (
            {"l.yaml": text(llm_service).replace("CONTAINER", arguments)},
            states,
        ),
        "config": ({"serve.yaml": config}, uncached),
        "config of a command": (named, uncached),
        "image": (
            {"a.sh": "podman run -it vllm/vllm-openai:v0.19.1 Qwen/Qwen3-8B "
             "--max-num-seqs 64 --max-model-len 16384\n"},
            LIMITS,
        ),
        "flags": ({"vllm.args": "--max-num-seqs 64\n# lengths\n--max-model-len=16384\n"}, LIMITS),
    }  # fmt: skip
    return [Deployed(f"vllm {name}", "vllm", *found) for name, found in files.items()]


def of_router() -> list[Deployed]:
    flags = [
        *("--worker-urls", "http://a:8000", "http://b:8000", "--policy", "cache_aware"),
        *("--balance-abs-threshold", "32", "--max-concurrent-requests", "256"),
    ]
    launch = ["python3", "-m", "sglang_router.launch_router", *flags]
    started = [
        *("python3", "-m", "sglang_router.launch_server", "--model-path", "Qwen/Qwen3-8B"),
        *("--dp-size", "3", "--max-running-requests", "64", "--context-length", "16384"),
        *("--router-balance-abs-threshold", "32", "--router-max-concurrent-requests", "256"),
    ]
    service_ = {"image": "lmsysorg/sgl-model-gateway:v0.3.2", "command": flags}
    states = {"router.balance_abs_threshold": 32, "gateway.limit[0].max_in_flight": 256}
    files = {
        "script": {"a.sh": script(launch)},
        "docker": {"a.sh": f"docker run lmsysorg/sgl-router:v0.2.4 {shlex.join(flags)}\n"},
        "compose": {"compose.yaml": dumped({"services": {"router": service_}})},
        "deployment": {"a.yaml": dumped(manifest("Deployment", {"command": launch}))},
    }
    with_servers = {**states, **LIMITS, f"{GROUP}.count": 3}
    return [
        *(
            Deployed(f"router {name}", "sglang-router", text, states)
            for name, text in files.items()
        ),
        Deployed("router servers", "sglang-router", {"a.sh": script(started)}, with_servers),
    ]


DEPLOYED = [
    *(*of_engines(), *of_picker(), *of_envoy(), *of_keys(), *of_dynamo(), *of_charts()),
    *of_router(),
]

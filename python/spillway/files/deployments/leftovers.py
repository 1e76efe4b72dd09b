"""Fields, commands and documents that are part of no piece."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from spillway.files.deployments.secrets import MASK
from spillway.files.deployments.target import Unread
from spillway.files.deployments.variables import irrelevant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

UNKNOWN = "nothing in it is known"
"""The reason of a document of which not even the kind says anything."""

_SMALL = frozenset(
    """
    echo cd mkdir set sleep source . pip pip3 apt-get apt curl wait trap kill nvidia-smi hf
    huggingface-cli ulimit chmod kubectl helm test [ [[ ls cat rm cp mv ln wget git true exit
    printf unset return shift read grep sed awk tee date hostname which command nc ray docker
    podman break continue case : python3 python uv conda module srun export tail head until
    ps
    """.split()  # noqa: SIM905
)
_LOOPS = ("for", "while", "until")
_IRRELEVANT = frozenset(
    """
    apiVersion kind metadata name labels annotations selector matchLabels status volumes
    volumeMounts volumeClaimTemplates ports livenessProbe readinessProbe startupProbe lifecycle
    resources securityContext nodeSelector tolerations affinity imagePullSecrets imagePullPolicy
    serviceAccountName serviceAccount restartPolicy terminationGracePeriodSeconds strategy stdin
    tty updateStrategy podManagementPolicy serviceName revisionHistoryLimit hostNetwork
    progressDeadlineSeconds minReadySeconds hostIPC hostPID dnsPolicy schedulerName
    runtimeClassName priorityClassName topologySpreadConstraints workingDir image
    automountServiceAccountToken enableServiceLinks terminationMessagePath shareProcessNamespace
    terminationMessagePolicy volumeDevices hostname subdomain extraVolumes extraVolumeMounts
    monitoring podMonitor serviceMonitor container_name expose networks volumes_from ipc
    shm_size ulimits runtime healthcheck restart depends_on logging devices gpus privileged
    profiles pull_policy platform user working_dir env_file secrets configs version services
    componentType type dynamoNamespace sharedMemory pvcs pvc envFromSecret requestCPU
    requestMemory requestGPU limitCPU limitMemory pvcStorage tag pvcAccessMode storageClass
    hf_token repository shmSize pvcMatchLabels accelerator mountModelVolume modelCommand
    authSecretName artifacts size fullnameOverride nameOverride serviceAccountOverride routing
    service ingress backendFramework modelRef subComponentType mountPath chart global podLabels
    podAnnotations extraMetadata podSecurityContext containerSecurityContext enabled
    networkConfig rolloutStrategy startupPolicy networkPolicy namespace applyTo
    """.split()  # noqa: SIM905
)
_PROXY = re.compile(r"envoy(?:-.*)?|proxyv2|auto|istio-proxy|.*-envoy")  # Istio replaces `auto`
_ASIDE = {  # of kinds of objects that decide something that their files do not say in full
    "PodAutoscaler": "scales the servers: state it as fleet.autoscaler in --onto",
    "ScaledObject": "scales the servers: state it as fleet.autoscaler in --onto",
    "VariantAutoscaling": "scales the servers: state it as fleet.autoscaler in --onto",
}
_STRATEGY = "ROUTING_ALGORITHM"  # of AIBrix
_OF_ROUTES = ("timeout", "retries", "fault", "mirror", "mirrors", "weight")
_IRRELEVANT_KINDS = frozenset(
    """
    Service Ingress PersistentVolumeClaim PersistentVolume Namespace Role ServiceAccount
    RoleBinding ClusterRole ClusterRoleBinding PodMonitor Secret ServiceMonitor StorageClass
    NetworkPolicy PodDisruptionBudget ResourceQuota Gateway GatewayClass HTTPRoute InferencePool
    Certificate Issuer Route SecretProviderClass ExternalSecret Kustomization
    CustomResourceDefinition
    """.split()  # noqa: SIM905
)


def field(where: str, key: str, value: Any) -> Unread:
    """A field that is part of no piece."""
    if key in _IRRELEVANT or key == "initContainers" or key.startswith("x-"):
        return Unread(where, value, irrelevant, "irrelevant")
    return Unread(where, value, "has no counterpart in a simulation")


def command(where: str, words: Sequence[str]) -> list[Unread]:
    """A command that is not of a known program."""
    name = words[0].rpartition("/")[2]
    value = list(words)
    if name in _LOOPS:
        return [Unread(f"{where}: {name}", value, "is gone through once")]
    if name in _SMALL and not (name.startswith("python") and "-m" in words):
        return [Unread(f"{where}: {name}", value, irrelevant, "irrelevant")]
    return [Unread(f"{where}: {name}", value, "is not a program that is simulated")]


def _routing(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a VirtualService that change what becomes of requests."""
    if isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _routing(entry, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, entry in value.items():
            place = f"{path}.{key}".lstrip(".")
            if key in _OF_ROUTES:
                yield place, entry
            else:
                yield from _routing(entry, place)


def document(where: str, content: Any) -> Unread:
    """A document without a piece."""
    kind = content.get("kind") if isinstance(content, dict) else None
    if isinstance(kind, str) and kind in _IRRELEVANT_KINDS:
        shown = {**content, "data": MASK} if kind == "Secret" else content
        shown = {**shown, "stringData": MASK} if "stringData" in shown else shown
        return Unread(f"{where}: {kind}", shown, irrelevant, "irrelevant")
    if kind == "VirtualService":
        found = dict(_routing(content))
        reason = "is of the clients here: state timeouts and retries as reaction in --onto"
        if not found:
            return Unread(f"{where}: {kind}", content, irrelevant, "irrelevant")
        return Unread(f"{where}: {kind}", found, reason)
    reason = _ASIDE.get(str(kind), UNKNOWN)
    if kind and _STRATEGY in json.dumps(content, default=str):
        reason = f"routes by {_STRATEGY}: state it as router in --onto"
    elif kind and any(_PROXY.fullmatch(image) for image in _images(content)):
        reason = "runs a proxy, whose pods count each alone: state them as gateway.replicas"
    return Unread(f"{where}: {kind}" if kind else where, content, reason)


def _images(value: Any) -> Iterator[str]:
    """The last names of the images that containers run."""
    if isinstance(value, list):
        for entry in value:
            yield from _images(entry)
    elif isinstance(value, dict):
        image = value.get("image")
        if isinstance(image, str):
            yield image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        for key, entry in value.items():
            yield from _images(entry) if key != "image" else ()

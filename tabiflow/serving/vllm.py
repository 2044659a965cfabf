"""vLLM under Ray Serve's own application for language models.

Imported only where vLLM is installed. On a CPU its settings are those without which it does not
start, or starts in minutes: no compilation, a cache of a given size, one thread a process.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ray import serve
from ray.serve.llm import LLMConfig, build_openai_app

from tabiflow.serving.start import Start

MOST_LOGPROBS = 20
CPU_CACHE = 512 * 1024**2
"""Bytes for keys and values. Without a number vLLM wants nine tenths of the machine's memory."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # the model is a folder
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every replica binds to the same core
}


def versions() -> str:
    return f"vllm {_vllm()}, ray {version('ray')}"


def _vllm() -> str:
    """Builds for CPUs go by another name."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return f"{version('vllm-cpu')} (CPU)"


def application(start: Start) -> serve.Application:
    row, on_gpu = start.generator, start.gpus > 0
    # A replica is a process that answers and processes that compute; together they are to take
    # no more than the row says.
    share = row.cpus / 2
    bundle = {"CPU": share} | ({"GPU": start.gpus} if on_gpu else {})
    config = LLMConfig(
        model_loading_config={"model_id": row.name, "model_source": str(start.folder)},
        accelerator_config=None if on_gpu else {"kind": "cpu"},
        placement_group_config={"bundles": [bundle] * row.tensor_parallel},
        runtime_env={"env_vars": ENVIRONMENT | ({} if on_gpu else CPU_ENVIRONMENT)},
        deployment_config={
            "ray_actor_options": {"num_cpus": share},
            "max_ongoing_requests": row.concurrency,
            **start.scaling,
        },
        engine_kwargs=_arguments(start),
    )
    ingress = {"ray_actor_options": {"num_cpus": 0}}
    application: serve.Application = build_openai_app(
        {"llm_configs": [config], "ingress_deployment_config": ingress}
    )
    return application


def _arguments(start: Start) -> dict[str, Any]:
    """vLLM's own; the row's `arguments` win."""
    row = start.generator
    made: dict[str, Any] = {
        "dtype": start.dtype,
        "max_logprobs": MOST_LOGPROBS,
        "tensor_parallel_size": row.tensor_parallel,
        "trust_remote_code": row.trust_remote_code,
    }
    if row.max_length is not None:
        made["max_model_len"] = row.max_length
    if start.gpus == 0:
        made |= {"enforce_eager": True, "kv_cache_memory_bytes": CPU_CACHE}
    elif start.gpus < 1:
        made["gpu_memory_utilization"] = 0.9 * start.gpus
    return made | row.arguments

"""Patch points of the rollout engines that several frameworks share."""

from rlmbench_probe.patching import Hook


def vllm_engine_hooks():
    """vLLM's engine process: each scheduler step, weights coming in, sleeping and waking (vllm/v1, 0.29 to 0.32)."""
    core = "vllm.v1.engine.core:EngineCore."
    worker = "vllm.v1.worker.gpu_worker:Worker."  # the CPU worker derives from it
    return [
        Hook(core + "step", "generation", "decode", name="engine_step", fields=new_tokens),
        Hook(core + "step_with_batch_queue", "generation", "decode", name="engine_step_queued", fields=new_tokens, optional=True),
        Hook(core + "sleep", "offload", name="engine_sleep", optional=True),
        Hook(core + "wake_up", "onload", name="engine_wake_up", optional=True),
        Hook(worker + "init_device", "startup", name="engine_init_device"),
        Hook(worker + "load_model", "startup", name="engine_load_model"),
        Hook(worker + "compile_or_warm_up_model", "startup", name="engine_warm_up"),
        Hook(worker + "reload_weights", "weight_sync", name="engine_reload_weights", optional=True),
        Hook(worker + "update_weights", "weight_sync", name="engine_update_weights", optional=True),
    ]


def new_tokens(args, kwargs, result):
    """`result` is (client -> EngineCoreOutputs, whether the model ran)."""
    outputs = result[0] or {}
    return {"response_tokens": sum(len(each.new_token_ids) for of_client in outputs.values() for each in of_client.outputs)}

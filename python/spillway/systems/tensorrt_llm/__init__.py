"""TensorRT-LLM: the command lines of `trtllm-serve`."""

trtllm-serve ${MODEL:?} \
  --max_batch_size 64 \
  --max_num_tokens 4096 \
  --max_seq_len 16384 \
  --enable_chunked_prefill \
  --config trtllm-0.yaml

python -m sglang.launch_server \
  --model-path ${MODEL:?} \
  --dp-size 2 \
  --max-running-requests 64 \
  --chunked-prefill-size 4096 \
  --context-length 16384 \
  --disable-radix-cache \
  --schedule-policy fcfs \
  --disable-overlap-schedule

python -m dynamo.frontend \
  --router-mode kv \
  --router-kv-overlap-score-credit 0.9 \
  --router-kv-overlap-score-credit-decay 0.5 \
  --router-prefill-load-scale 1.0 \
  --router-temperature 0.2 \
  --router-kv-events \
  --router-track-output-blocks \
  --active-decode-blocks-threshold 0.85 \
  --active-prefill-tokens-threshold 10000

#pragma once

#include <cstdint>

namespace spillway::instance {

/// What a step computes, summed over the requests that get tokens in it.
struct StepLoad {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_requests = 0;
  std::int64_t context_tokens = 0;  ///< tokens whose KV is in the cache before the step
};

/// Contract of a latency model: how long things take, in microseconds (the unit in which published
/// coefficients are given, so that they are evaluated without rescaling). Results are pure
/// functions of the arguments, finite and ≥ 0.
class LatencyModel {
 public:
  virtual ~LatencyModel() = default;
  /// Duration of one step.
  virtual double step_us(const StepLoad& load) const = 0;
  /// Time from routing to the engine's queue; it does not occupy the engine.
  virtual double entry_us(std::int64_t input_tokens) const = 0;
  /// Cost of delivering a token.
  virtual double output_us() const = 0;
};

}  // namespace spillway::instance

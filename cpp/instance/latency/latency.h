#pragma once

#include <cstdint>

namespace spillway::instance {

/// What a step computes, summed over the requests that get tokens in it.
struct StepLoad {
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_requests = 0;
  std::int64_t context_tokens = 0;  ///< tokens whose KV is in the cache before the step
  std::int64_t ordinal = 0;         ///< how many steps the instance has made before
};

/// What the duration of a step follows from. It decides how an instance may jump over steps.
enum class LatencyBasis : std::uint8_t {
  batch,    ///< prefill_tokens and decode_requests: equal batches take equally long
  context,  ///< these and context_tokens
  step,     ///< the ordinal as well: the instance makes every step by itself
};

/// Contract of a latency model: how long things take, in microseconds (the unit in which published
/// coefficients are given, so that they are evaluated without rescaling). Results are pure
/// functions of the arguments, finite and ≥ 0.
class LatencyModel {
 public:
  virtual ~LatencyModel() = default;
  virtual LatencyBasis basis() const = 0;
  /// Duration of one step. It must not look further than `basis` says.
  virtual double step_us(const StepLoad& load) const = 0;
  /// Time from routing to the engine's queue; it does not occupy the engine.
  virtual double entry_us(std::int64_t input_tokens) const = 0;
  /// Cost of delivering a token.
  virtual double output_us() const = 0;
};

}  // namespace spillway::instance

#pragma once

#include <cstdint>

namespace spillway::instance {

/// The work of a step, summed over the requests that get tokens in it.
struct StepLoad {
  std::int64_t prefill_tokens = 0;
  std::int64_t prefill_requests = 0;
  std::int64_t decode_requests = 0;
  std::int64_t context_tokens = 0;         ///< tokens whose KV is in the cache before the step
  std::int64_t decode_context_tokens = 0;  ///< those of the requests that decode
  /// Σ n·(2c + n) over the requests that prefill n tokens behind a context of c: twice the pairs of
  /// a token and one before it that attention computes.
  std::int64_t prefill_attention = 0;
  std::int64_t prefill_squares = 0;  ///< Σ n² over these requests
  std::int64_t ordinal = 0;          ///< number of previous steps of the instance
};

/// The inputs of a step's duration, which decide how an instance may combine steps.
enum class LatencyBasis : std::uint8_t {
  batch,    ///< tokens and requests: equal batches have equal durations
  context,  ///< also the contexts
  step,     ///< also the ordinal: the instance performs every step singly
};

/// Contract of a latency model: durations in microseconds (the unit of the published coefficients,
/// which are evaluated without rescaling). Results are pure functions of the arguments, finite and
/// ≥ 0.
class LatencyModel {
 public:
  virtual ~LatencyModel() = default;
  virtual LatencyBasis basis() const = 0;
  /// Duration of one step. It must depend only on the inputs in `basis`.
  virtual double step_us(const StepLoad& load) const = 0;
  /// Time from routing to the engine's queue, which does not occupy the engine.
  virtual double entry_us(std::int64_t input_tokens) const = 0;
  /// Cost of delivering a token.
  virtual double output_us() const = 0;
};

}  // namespace spillway::instance

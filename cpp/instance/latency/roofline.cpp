#include "instance/latency/roofline.h"

#include <algorithm>
#include <cmath>

#include "instance/latency/latency.h"
#include "sim/math.h"

namespace spillway::instance {

namespace {

// The p-norm of two nonnegative numbers. Square roots are exactly rounded everywhere, `pow` is not.
double norm_of(double a, double b, double p) {
  const double longer = std::max(a, b);
  if (longer == 0) return 0;
  const double ratio = std::min(a, b) / longer;
  const double square = ratio * ratio;
  if (p == 2) return longer * std::sqrt(1 + square);
  if (p == 4) return longer * std::sqrt(std::sqrt(1 + square * square));
  return longer * sim::pow(1 + sim::pow(ratio, p), 1 / p);
}

// The power of a number in [0, 1] with products alone, which round the same everywhere.
double power_of(double base, std::int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power *= base;
    base *= base;
  }
  return power;
}

class RooflineModel final : public LatencyModel {
 public:
  explicit RooflineModel(const Roofline& config) : c_(config) {}

  LatencyBasis basis() const override {
    return c_.decode_context_us != 0 || c_.prefill_context_us != 0 ? LatencyBasis::context
                                                                   : LatencyBasis::batch;
  }
  double step_us(const StepLoad& load) const override {
    // The order of evaluation is part of the contract: other orders round differently.
    const auto prefill = static_cast<double>(load.prefill_tokens);
    const auto decode = static_cast<double>(load.decode_requests);
    double weights_us = c_.weights_us;
    if (c_.expert_weights_us != 0) {
      const std::int64_t tokens = load.prefill_tokens + load.decode_requests;
      weights_us += c_.expert_weights_us * (1 - power_of(1 - c_.expert_share, tokens));
    }
    double us = 0;
    if (c_.norm == 1.0) {
      us = (c_.constant_us + weights_us) + c_.token_us * prefill;
      us = us + (c_.token_us + c_.decode_us) * decode;
    } else {
      const double tokens_us = c_.token_us * (prefill + decode);
      const double matrices_us =
          c_.norm ? norm_of(weights_us, tokens_us, *c_.norm) : std::max(weights_us, tokens_us);
      us = (c_.constant_us + matrices_us) + c_.decode_us * decode;
    }
    if (c_.decode_context_us != 0) {
      us = us + c_.decode_context_us * static_cast<double>(load.decode_context_tokens);
    }
    if (c_.prefill_context_us != 0) {
      us = us + c_.prefill_context_us * (0.5 * static_cast<double>(load.prefill_attention));
    }
    if (c_.chunk_us != 0) us = us + c_.chunk_us * static_cast<double>(load.prefill_requests);
    return us;
  }
  double entry_us(std::int64_t input_tokens) const override {
    return c_.alpha0_us + c_.alpha_input_us * static_cast<double>(input_tokens);
  }
  double output_us() const override { return c_.alpha_output_us; }

 private:
  Roofline c_;
};

}  // namespace

std::unique_ptr<LatencyModel> make(const Roofline& config, std::uint64_t, sim::InstanceId) {
  return std::make_unique<RooflineModel>(config);
}

}  // namespace spillway::instance

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/rng.h"
#include "workload/lengths/lengths.h"
#include "workload/lengths/policies.h"

namespace spillway::workload {

/// Lengths of one request: of the unshared part of its prompt, and of its output.
struct LengthsOfRequest {
  std::int64_t input_tokens;
  std::int64_t output_tokens;
};

/// Input and output lengths with given distributions, joined by a Gaussian copula.
class LengthPair {
 public:
  /// `correlation` is the rank correlation (Spearman) of both lengths.
  /// `max_tokens`: longer outputs end there.
  LengthPair(const Lengths& input, const Lengths& output, double correlation,
             const std::optional<std::int64_t>& max_tokens);
  /// The lengths of the request to which both streams belong. Without correlation each length
  /// draws as if it were alone.
  LengthsOfRequest draw(sim::Draws& in, sim::Draws& out) const;

 private:
  std::unique_ptr<LengthDistribution> input_;
  std::unique_ptr<LengthDistribution> output_;
  std::int64_t max_output_;
  double of_normals_;  // correlation of the normal variables of the copula
};

}  // namespace spillway::workload

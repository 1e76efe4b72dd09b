#include "workload/lengths/pair.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "sim/math.h"

namespace spillway::workload {

namespace {

double normal_probability(double z) {
  constexpr double kSmallest = std::numeric_limits<double>::epsilon() / 2;
  return std::clamp(sim::normal_probability(z), kSmallest, 1 - kSmallest);
}

}  // namespace

LengthPair::LengthPair(const Lengths& input, const Lengths& output, double correlation,
                       const std::optional<std::int64_t>& max_tokens)
    : input_(make_lengths(input)),
      output_(make_lengths(output)),
      max_output_(max_tokens.value_or(std::numeric_limits<std::int64_t>::max())),
      of_normals_(2 * sim::sin(std::numbers::pi / 6 * correlation)) {}

LengthsOfRequest LengthPair::draw(sim::Draws& in, sim::Draws& out) const {
  if (of_normals_ == 0) {
    return {std::max<std::int64_t>(1, input_->tokens(in)),
            std::min(output_->tokens(out), max_output_)};
  }
  const double first = in.normal();
  const double own = std::sqrt(std::max(0.0, 1 - of_normals_ * of_normals_));
  const double second = of_normals_ * first + own * out.normal();
  return {std::max<std::int64_t>(1, input_->quantile(normal_probability(first))),
          std::min(output_->quantile(normal_probability(second)), max_output_)};
}

}  // namespace spillway::workload

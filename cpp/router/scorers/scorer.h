#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::router {

/// Contract of a scorer: how well does each instance suit this request? `score` fills one value per
/// instance, higher is better; what lies outside of [0, 1] is clamped. It is free of effects;
/// `learn` tells of the choice that was made after it.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual void score(const signals::RequestView& request, const signals::View& view,
                     std::span<double> scores) = 0;
  virtual void learn(const signals::RequestView& /*request*/, sim::InstanceId /*chosen*/) {}
};

/// 1 for the smallest value, 0 for the largest, in proportion between; 1 for all if they are equal.
template <class Value>
void score_smallest(std::span<double> scores, const Value& value_of) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = std::numeric_limits<std::int64_t>::min();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::int64_t value = value_of(i);
    scores[i] = static_cast<double>(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  const auto width = static_cast<double>(most - least);
  for (double& score : scores) {
    score = most == least ? 1.0 : (static_cast<double>(most) - score) / width;
  }
}

}  // namespace spillway::router

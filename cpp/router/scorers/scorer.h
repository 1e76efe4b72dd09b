#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "router/least_load.h"
#include "signals/view.h"
#include "sim/ids.h"

namespace spillway::router {

/// Contract of a scorer: how suitable is each instance for this request? `score` writes one value
/// per instance, higher is better; values are clamped to [0, 1]. It has no side effects; `learn`
/// follows with the choice that was made.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual void score(const signals::RequestView& request, const signals::View& view,
                     std::span<double> scores) = 0;
  virtual void learn(const signals::RequestView& /*request*/, sim::InstanceId /*chosen*/) {}
  /// The load whose order is exactly the reverse of that of the scores, whatever the request; null:
  /// there is none.
  virtual Load load() const { return nullptr; }
};

/// 1 for the smallest value, 0 for the largest, linear in between; 1 for all if they are equal.
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

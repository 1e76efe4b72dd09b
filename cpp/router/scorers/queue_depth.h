#pragma once

#include <memory>
#include <string_view>

#include "router/scorers/weight.h"

#include "router/queue_load.h"

namespace spillway::router {

class Scorer;

/// The shortest queue.
struct QueueDepth {
  double weight = 1;
  QueueLoad load = QueueLoad::waiting;

  static constexpr std::string_view kind = "queue_depth", type_name = "QueueDepth";
  static constexpr std::string_view doc =
      "The shorter the queue the better: 1 for the shortest, 0 for the longest; 1 for all if they "
      "are equal.";
  static void fields(auto field) {
    add_weight<QueueDepth>(field);
    field("load", &QueueDepth::load,
          "What counts as queue: the requests waiting in the engine, or "
          "all that wait, run or are in flight (the latter two twice).");
  }
};

std::unique_ptr<Scorer> make(const QueueDepth& config);

}  // namespace spillway::router

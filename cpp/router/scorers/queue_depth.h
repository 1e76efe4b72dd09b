#pragma once

#include <memory>
#include <string_view>

#include "router/queue_load.h"
#include "router/scorers/weight.h"
#include "signals/follows.h"

namespace spillway::router {

class Scorer;

/// The shortest queue.
struct QueueDepth {
  double weight = 1;
  QueueLoad load = QueueLoad::waiting;

  static constexpr std::string_view kind = "queue_depth", type_name = "QueueDepth";
  static constexpr std::string_view doc =
      "1 for the shortest queue, 0 for the longest; 1 for all if they are equal.";
  static void fields(auto field) {
    add_weight<QueueDepth>(field);
    field("load", &QueueDepth::load,
          "Measure of the queue. waiting: the requests waiting in the engine; effective: waiting + "
          "running + in flight (requests that the instance reports count twice).");
  }
  signals::Follows follows() const {
    return load == QueueLoad::waiting ? signals::Follows::steps : signals::Follows::requests;
  }
};

std::unique_ptr<Scorer> make(const QueueDepth& config);

}  // namespace spillway::router

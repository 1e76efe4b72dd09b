#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "sim/schema/enum.h"
#include "sim/schema/range.h"

namespace spillway::router {

class Filter;

/// The load by which instances are unequal.
enum class ImbalanceLoad : std::uint8_t { in_flight, running };

/// Keeps the least loaded instances if the loads are too unequal.
struct LoadImbalance {
  std::int64_t threshold = 8;
  ImbalanceLoad load = ImbalanceLoad::in_flight;

  static constexpr std::string_view kind = "load_imbalance", type_name = "LoadImbalance";
  static constexpr std::string_view doc =
      "Keeps the least loaded instances if the largest load exceeds the smallest one by "
      "`threshold` "
      "or more, otherwise all: the gate before the prefix routing of AIBrix.";
  static void fields(auto field) {
    field("threshold", &LoadImbalance::threshold, "Difference from which loads are too unequal.")
        .unit("requests")
        .range(sim::between(1, 1e9))
        .log_search(1, 64);
    field("load", &LoadImbalance::load,
          "Load of an instance. in_flight: requests that the gateway has sent there and that have "
          "not finished; running: those in its batch, as reported.");
  }
};

std::unique_ptr<Filter> make(const LoadImbalance& config);

}  // namespace spillway::router

template <>
struct spillway::sim::EnumNames<spillway::router::ImbalanceLoad> {
  static constexpr std::array<std::string_view, 2> names{"in_flight", "running"};
};
